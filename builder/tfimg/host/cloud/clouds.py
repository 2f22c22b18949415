"""What each cloud takes as user data, the command that makes a machine, and what a shutdown means there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tfimg.matrix.schema import Device

Name = Literal["gcp", "aws", "azure", "aliyun", "generic"]

FITTING_IMAGES = "Ubuntu 24.04, Debian 13 with cloud-init, Amazon Linux 2023, AWS's Deep Learning AMI with Ubuntu"

UNFITTING_IMAGE = (
    "Container-Optimized OS: its root file system is read-only, and it has no package manager and no Python, so that "
    "tfimg and NVIDIA's container toolkit cannot be installed"
)
"""The image whose name suggests that it fits, and why it does not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineImage:
    """A cloud's image of a machine: `options` name it in the command, `title` in a sentence."""

    options: str
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cloud:
    """A cloud. `limit` is the most bytes of user data; `make` by device the command that makes a machine with {file}.

    Its {image} is `plain`, or `with_driver` where the machine needs NVIDIA's driver and does not install it. `note` is
    what to know of a machine that shuts itself down; None where there is nothing to.
    """

    name: Name
    title: str
    limit: int
    make: Mapping[Device, str]
    plain: MachineImage
    with_driver: MachineImage
    note: str | None = None

    def machine_image(self, device: Device, *, install_driver: bool) -> MachineImage:
        """Return the image of the machine that the command names."""
        return self.with_driver if device == "gpu" and not install_driver else self.plain

    def command(self, device: Device, *, install_driver: bool, file: str) -> str:
        """Return the command that makes a machine with the user data of a file, which is quoted for a shell."""
        image = self.machine_image(device, install_driver=install_driver)
        return self.make[device].format(image=image.options, file=file)


def _for(command: str, *, cpu: str, gpu: str) -> dict[Device, str]:
    """Return a command that is the same for each device, but for the type of the machine."""
    return {"cpu": command.replace("{machine}", cpu), "gpu": command.replace("{machine}", gpu)}


UBUNTU = "Ubuntu 24.04"
OWN_IMAGE = MachineImage(options="", title="the image of your machine")
OWN_IMAGE_WITH_DRIVER = MachineImage(options="", title="the image of your machine, which needs NVIDIA's driver")

GCLOUD = (
    "gcloud compute instances create NAME --zone ZONE {image} --boot-disk-size 100GB "
    "--metadata-from-file user-data={file}"
)
"""A machine whose disk holds the image of a GPU twice."""

CLOUDS: Mapping[Name, Cloud] = {
    # Key: cloud-init, Google Compute Engine datasource. Limit: docs.cloud.google.com/compute/docs/metadata/
    # setting-custom-metadata. Both images are Canonical's and have cloud-init; Google's own Debian images have none.
    "gcp": Cloud(
        name="gcp",
        title="Google Cloud",
        limit=262144,
        make={
            "cpu": f"{GCLOUD} --machine-type e2-standard-4",
            "gpu": f"{GCLOUD} --machine-type g2-standard-4 --maintenance-policy TERMINATE",
            "tpu": "gcloud compute tpus tpu-vm create NAME --zone ZONE --accelerator-type TYPE --version VERSION "
            "--metadata-from-file user-data={file}",
        },
        plain=MachineImage(
            options="--image-project ubuntu-os-cloud --image-family ubuntu-2404-lts-amd64", title=UBUNTU
        ),
        with_driver=MachineImage(
            options="--image-project ubuntu-os-accelerator-images "
            "--image-family ubuntu-accelerator-2404-amd64-with-nvidia-580",
            title=f"{UBUNTU} with NVIDIA's driver 580",
        ),
    ),
    # Limit: EC2 user guide, "Work with instance user data": 16 KB before it is base64-encoded, which the command does.
    # Images: public SSM parameters of Canonical and of AWS's Deep Learning Base AMI; the root device of both is
    # /dev/sda1. Spot: EC2 user guide, "Behavior of Spot Instance interruptions": only a persistent request stops.
    "aws": Cloud(
        name="aws",
        title="AWS",
        limit=16384,
        make=_for(
            "aws ec2 run-instances --image-id {image} --instance-type {machine} --key-name KEY "
            "--block-device-mappings 'DeviceName=/dev/sda1,Ebs={{VolumeSize=100,VolumeType=gp3}}' "
            "--instance-market-options 'MarketType=spot,SpotOptions={{SpotInstanceType=persistent,"
            "InstanceInterruptionBehavior=stop}}' --user-data file://{file}",
            cpu="m7i.xlarge",
            gpu="g6.xlarge",
        ),
        plain=MachineImage(
            options="resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
            title=UBUNTU,
        ),
        with_driver=MachineImage(
            options="resolve:ssm:/aws/service/deeplearning/ami/x86_64/"
            "base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id",
            title=f"the Deep Learning Base AMI ({UBUNTU} with NVIDIA's driver)",
        ),
        note="a shutdown stops the machine and keeps its disk; cancel its spot request before you terminate it, or the "
        "persistent request makes another one",
    ),
    # Limit: Compute API, OSProfile.customData: 65535 bytes after decoding; the command encodes. The image with a driver
    # fills most of its 64 GB, and its modules are not signed for Secure Boot. Note: Azure, "States and billing status".
    "azure": Cloud(
        name="azure",
        title="Azure",
        limit=65535,
        make=_for(
            "az vm create --resource-group GROUP --name NAME {image} --size {machine} --os-disk-size-gb 128 "
            "--assign-identity --generate-ssh-keys --custom-data {file}",
            cpu="Standard_D4s_v5",
            gpu="Standard_NC4as_T4_v3",
        ),
        plain=MachineImage(options="--image Ubuntu2404", title=UBUNTU),
        with_driver=MachineImage(
            options="--image microsoft-dsvm:ubuntu-hpc:2404:latest --security-type Standard",
            title=f"Ubuntu-HPC 24.04 ({UBUNTU} with NVIDIA's driver)",
        ),
        note="a machine that shuts itself down is billed on, unless its managed identity may deallocate it: give it "
        "the role Virtual Machine Contributor on itself",
    ),
    # Limit: ECS, "Overview of ECS instance user data": 32 KB before it is base64-encoded. Note: ECS, StopInstance.
    "aliyun": Cloud(
        name="aliyun",
        title="Alibaba Cloud",
        limit=32768,
        make=_for(
            "aliyun ecs RunInstances --RegionId REGION --ImageId {image} --VSwitchId VSWITCH --SecurityGroupId GROUP "
            '--InstanceType {machine} --UserData "$(base64 --wrap=0 {file})"',
            cpu="ecs.g7.xlarge",
            gpu="ecs.gn7i-c8g1.2xlarge",
        ),
        plain=MachineImage(options="UBUNTU_IMAGE", title=UBUNTU),
        with_driver=MachineImage(options="GPU_IMAGE", title=f"{UBUNTU} with NVIDIA's driver"),
        note="whether a stopped machine is billed on depends on its stop mode (economical or standard)",
    ),
    # Whatever reads NoCloud seeds, such as a virtual machine of one's own; the smallest limit of all.
    "generic": Cloud(
        name="generic",
        title="a machine of your own",
        limit=16384,
        make=dict.fromkeys(("cpu", "gpu", "tpu"), "cloud-localds seed.img {file}  # and attach seed.img as a disk"),
        plain=OWN_IMAGE,
        with_driver=OWN_IMAGE_WITH_DRIVER,
    ),
}
"""By the name that the command line takes. The commands are what the clouds' documentation shows; none was run here."""
