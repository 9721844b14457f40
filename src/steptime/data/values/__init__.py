"""What `steptime data` answers with: frozen values for whoever shows or stores them."""
