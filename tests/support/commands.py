"""What tests of the command have in common."""


def refused(result, *parts):
    """Checks the promise and returns the line."""
    assert result.code == 2, result
    lines = result.err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("xmcjax ") and ": error: " in lines[0]
    assert "Traceback" not in result.err
    for part in parts:
        assert str(part) in lines[0], lines[0]
    return lines[0]
