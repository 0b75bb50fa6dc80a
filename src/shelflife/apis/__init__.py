"""The reference APIs, written the way a user would write one."""
