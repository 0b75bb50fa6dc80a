"""The tool that agents call, as frameworks read it: its arguments as a model of data, and as the signature of a function."""

from pydantic import BaseModel


class Wanted(BaseModel):
    customer: str
    plan: str
    amount: int
    currency: str
    payment_method_token: str
    promo_code: str | None = None


def as_function(implementation):
    """The same tool for frameworks that read signatures."""

    async def subscribe(
        customer: str,
        plan: str,
        amount: int,
        currency: str,
        payment_method_token: str,
        promo_code: str | None = None,
    ) -> str:
        """Make a subscription."""
        return await implementation(
            customer=customer,
            plan=plan,
            amount=amount,
            currency=currency,
            payment_method_token=payment_method_token,
            promo_code=promo_code,
        )

    return subscribe
