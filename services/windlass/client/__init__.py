"""The Python SDK: OpenAI's client for what OpenAI has, and ours for the rest.

>>> windlass = Windlass(base_url="http://127.0.0.1:8080", api_key="wl-...")
>>> windlass.models.import_folder("llama-3.2-1b", Path("./llama"))
>>> windlass.openai.fine_tuning.jobs.create(model="llama-3.2-1b", training_file="file-...")
"""

from windlass.client.errors import ConnectionFailed, WindlassError
from windlass.client.windlass import Windlass

__all__ = ["ConnectionFailed", "Windlass", "WindlassError"]
