"""From markers to rows: each thread's journal and timeline, and the recorder that writes them."""
