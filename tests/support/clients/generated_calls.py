"""Calls of a client generated from /openapi.json: BASE_URL KEY MODEL, with it on PYTHONPATH."""

import json
import sys
from io import BytesIO

from generated.api.files import create_file, delete_file, list_files
from generated.api.fine_tuning import cancel_job, create_job, list_events, retrieve_job
from generated.api.models import list_models, retrieve_model
from generated.client import AuthenticatedClient
from generated.models.create_file_body import CreateFileBody
from generated.models.create_job import CreateJob
from generated.types import File

base_url, key, model = sys.argv[1:]
client = AuthenticatedClient(base_url=base_url, token=key)
said = {}
said["models"] = [one.id for one in list_models.sync(client=client).data]
line = json.dumps(
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
)
payload = File(payload=BytesIO((line + "\n").encode() * 20), file_name="train.jsonl")
file = create_file.sync(client=client, body=CreateFileBody(file=payload, purpose="fine-tune"))
said["file"] = [
    file.filename,
    file.purpose,
    file.id in [one.id for one in list_files.sync(client=client).data],
]
body = CreateJob.from_dict({"model": model, "training_file": file.id, "suffix": "generated"})
job = create_job.sync(client=client, body=body)
said["job"] = [job.object_, job.status, retrieve_job.sync(job.id, client=client).id == job.id]
said["events"] = [one.object_ for one in list_events.sync(job.id, client=client).data][:1]
said["cancelled"] = cancel_job.sync(job.id, client=client).status
refused = retrieve_model.sync_detailed("never-was", client=client)
said["refused"] = [refused.status_code, refused.parsed.error.code]
said["deleted"] = delete_file.sync(file.id, client=client).deleted
print(json.dumps(said))
