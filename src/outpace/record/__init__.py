"""What happened, request by request: kept on disk while serving, read when somebody asks."""
