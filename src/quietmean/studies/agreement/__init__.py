"""What several parties agree to: what is asked, who they are, under which keys, signed and sealed."""
