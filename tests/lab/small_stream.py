"""A stream of the smallest kind, as a user would write it."""

SMALL = """\
name = "small"
title = "Two tasks"
api = "acme"
governed = "g"
order = ["a", "b"]
stale_slots = [1]

[families.a]
class = "g"
hint = "add a field"
task = "Subscribe to {plan}."
[families.a.input]
customer = "c"
plan = "plan_partner_growth"
amount = 5
currency = "usd"
payment_method_token = "t"

[families.b]
class = "g"
hint = "add a field"
task = "Again."
input = { customer = "c", plan = "plan_partner_scale", amount = 5, currency = "usd", payment_method_token = "t" }

[[drift]]
after = 0
table = "active_csm_codes"
remove = ["plan_startup_program"]
"""
