"""What commands show, where several do or a file would grow too long."""
