"""One guarded module per third-party tie."""
