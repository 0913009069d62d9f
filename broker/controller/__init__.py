"""The controller: commands to metadata records (decide), records to the cluster image (replay). Pure."""
