"""The programs of the guide to MCP do what it says, each as it stands there. Servers are processes of their own."""

import runpy

import mcp  # noqa: F401 - it keeps the standard error that there is when it is first imported, so not that of one test
import pytest

from tests.document_programs import ROOT, write_programs

GUIDE = (ROOT / "docs" / "guides" / "mcp.md").read_text("utf-8")


@pytest.mark.runs("tool_contract.py", "tool_shop.py", "fast_shop.py", "tool_agent.py")
@pytest.mark.parametrize("shop", ["tool_shop.py", "fast_shop.py"])
def test_the_agent_of_the_guide_learns_uses_and_replaces_a_fix(shop, tmp_path, monkeypatch, capfd):
    write_programs(tmp_path)
    monkeypatch.chdir(tmp_path)
    agent, contract = tmp_path / "tool_agent.py", tmp_path / "tool_contract.py"
    agent.write_text(agent.read_text().replace("tool_shop.py", shop))

    def played():
        runpy.run_path(str(agent))["memory"].close()
        return capfd.readouterr().out.removesuffix("\n")

    first, second = played(), played()
    assert first.removeprefix("True ") in GUIDE
    assert f"The second prints `{second}`" in GUIDE
    contract.write_text(contract.read_text().replace("SUMMER25", "WINTER26"))
    assert played() == second.replace("SUMMER25", "WINTER26")
