"""The arguments of the tool, as a framework shows them to a model."""

from pydantic import BaseModel


class Wanted(BaseModel):
    customer: str
    plan: str
    amount: int
    currency: str
    payment_method_token: str
    promo_code: str | None = None
