"""Two machines' worth of workers over one PostgreSQL, behind one port, and what can go wrong between them."""
