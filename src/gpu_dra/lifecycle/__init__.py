"""The lifecycle manager's room: what is done to nodes and to the installation, beside serving claims."""
