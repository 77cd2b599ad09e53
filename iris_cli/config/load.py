"""`cluster.yaml` to a ClusterConfig: slices and ranges of hosts expanded, settings inherited downwards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from iris_cli.config import validate
from iris_cli.config.attributes import attributes_of, free_attributes
from iris_cli.config.env_file import env
from iris_cli.config.host_ranges import MOST_HOSTS, expand
from iris_cli.config.job_file import argv, cores, duration, gpu_device, job_fields, size, tpu_type
from iris_cli.config.problems import Report
from iris_cli.config.reading import Place, Section, boolean, integer, list_of, matching, one_of, section, text, written
from iris_cli.config.schema import (
    NOWHERE,
    ClusterConfig,
    Defaults,
    HostConfig,
    Notify,
    ScaleGroup,
    SliceTemplate,
)
from iris_cli.config.yaml_source import read_yaml
from iris_cli.core.attributes import (
    DEVICE_TYPE_ATTRIBUTE_KEY,
    DEVICE_VARIANT_ATTRIBUTE_KEY,
    PREEMPTIBLE_ATTRIBUTE_KEY,
    REGION_ATTRIBUTE_KEY,
    SCALE_GROUP_ATTRIBUTE_KEY,
    TPU_NAME_ATTRIBUTE_KEY,
    TPU_TOPOLOGY_ATTRIBUTE_KEY,
    TPU_VM_COUNT_ATTRIBUTE_KEY,
    TPU_WORKER_ID_ATTRIBUTE_KEY,
    ZONE_ATTRIBUTE_KEY,
    AttributeValue,
    RawValue,
)
