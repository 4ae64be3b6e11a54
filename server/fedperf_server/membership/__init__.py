"""Who is a member: invitations, certificates, revocation."""
