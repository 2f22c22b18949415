"""What each cloud takes as user data, how a machine is made with it, and what shutting down means there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tfimg.matrix.schema import Device

Name = Literal["gcp", "aws", "azure", "aliyun", "generic"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cloud:
    """A cloud. `limit` is the most bytes of user data; `make` by device the command that makes a machine with FILE.

    `note` is what to know of a machine that shuts itself down; None where there is nothing to.
    """

    name: Name
    title: str
    limit: int
    make: Mapping[Device, str]
    note: str | None = None


def _for(command: str, *, cpu: str, gpu: str) -> dict[Device, str]:
    """A command that is the same for each device, but for the type of the machine."""
    return {"cpu": command.replace("{machine}", cpu), "gpu": command.replace("{machine}", gpu)}


GCLOUD = (
    "gcloud compute instances create NAME --zone ZONE --image-project ubuntu-os-cloud --image-family "
    "ubuntu-2404-lts-amd64 --boot-disk-size 50GB --metadata-from-file user-data={file}"
)

CLOUDS: Mapping[Name, Cloud] = {
    # Key: cloud-init, Google Compute Engine datasource. Limit: docs.cloud.google.com/compute/docs/metadata/
    # setting-custom-metadata. Ubuntu's images are Canonical's, and have cloud-init.
    "gcp": Cloud(
        name="gcp", title="Google Cloud", limit=262144,
        make={
            "cpu": f"{GCLOUD} --machine-type e2-standard-4",
            "gpu": f"{GCLOUD} --machine-type g2-standard-4 --maintenance-policy TERMINATE",
            "tpu": "gcloud compute tpus tpu-vm create NAME --zone ZONE --accelerator-type TYPE --version VERSION "
            "--metadata-from-file user-data={file}",
        },
    ),
    # Limit: EC2 user guide, "Work with instance user data": 16 KB before it is base64-encoded, which the command does.
    "aws": Cloud(
        name="aws", title="AWS", limit=16384,
        make=_for(
            "aws ec2 run-instances --image-id AMI --instance-type {machine} --user-data file://{file}",
            cpu="m7i.xlarge", gpu="g6.xlarge",
        ),
        note="--instance-initiated-shutdown-behavior terminate makes a shutdown delete the machine",
    ),
    # Limit: Compute API, OSProfile.customData: 65535 bytes after decoding; the command encodes. Note: Azure,
    # "States and billing status of Azure Virtual Machines".
    "azure": Cloud(
        name="azure", title="Azure", limit=65535,
        make=_for(
            "az vm create --resource-group GROUP --name NAME --image Ubuntu2404 --size {machine} --assign-identity "
            "--custom-data {file}",
            cpu="Standard_D4s_v5", gpu="Standard_NC4as_T4_v3",
        ),
        note="a machine that shuts itself down is billed on, unless its managed identity may deallocate it: give it "
        "the role Virtual Machine Contributor on itself",
    ),
    # Limit: ECS, "Overview of ECS instance user data": 32 KB before it is base64-encoded. Note: ECS, StopInstance.
    "aliyun": Cloud(
        name="aliyun", title="Alibaba Cloud", limit=32768,
        make=_for(
            "aliyun ecs RunInstances --RegionId REGION --ImageId IMAGE --VSwitchId VSWITCH --SecurityGroupId GROUP "
            '--InstanceType {machine} --UserData "$(base64 --wrap=0 {file})"',
            cpu="ecs.g7.xlarge", gpu="ecs.gn7i-c8g1.2xlarge",
        ),
        note="whether a stopped machine is billed on depends on its stop mode (economical or standard)",
    ),
    # Whatever reads NoCloud seeds, such as a virtual machine of one's own; the smallest limit of all.
    "generic": Cloud(
        name="generic", title="a machine of your own", limit=16384,
        make=dict.fromkeys(("cpu", "gpu", "tpu"), "cloud-localds seed.img {file}  # and attach seed.img as a disk"),
    ),
}  # fmt: skip
"""By the name that the command line takes. The commands are what the clouds' documentation shows; none was run here."""
