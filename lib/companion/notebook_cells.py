"""What stored and shown notebooks have in common: their kernel, and a line in place of a widget."""

KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
WIDGET = "application/vnd.jupyter.widget-view+json"


def without_widget(output):
    """An output as it can be kept: a widget needs its kernel, so a line stands in its place."""
    if WIDGET not in output.get("data", {}):
        return output
    import nbformat

    words = "*A widget stands here in JupyterLab and Voila; without a kernel it cannot be shown.*"
    return nbformat.v4.new_output(
        "display_data", {"text/markdown": words, "text/plain": words.strip("*")}
    )
