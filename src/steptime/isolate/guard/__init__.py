"""What the kernel refuses a child by itself: system calls, and writes outside its folder."""
