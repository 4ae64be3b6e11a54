"""Membership of organizations: invitations, certificates, revocation."""
