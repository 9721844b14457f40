"""The forms that a conversion can make: one to train from, three to share."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from steptime.core.codec import render
from steptime.data.convert.conversion_journal import ConversionPlan
from steptime.data.convert.parquet_shards import ParquetShards
from steptime.data.convert.prepared_writer import PreparedWriter
from steptime.data.convert.record_files import RecordFiles
from steptime.data.convert.shard_writer import ShardWriter
from steptime.data.convert.tar_samples import TAR_SAMPLES
from steptime.data.convert.tf_records import TF_RECORDS
from steptime.data.prepared.layout import INDEX, PreparedIndex

PREPARED = "prepared"
SHARED_INDEX = "conversion.json"
"""Beside formats to share, whose readers may look for an `index.json` of their own."""


def make_writer(plan: ConversionPlan, folder: Path) -> ShardWriter:
    """Return what writes the plan's form into a folder."""
    if plan.form == "parquet":
        return ParquetShards(folder, plan.columns, plan.num_shards)
    if plan.form == "tfrecord":
        return RecordFiles(TF_RECORDS, folder, plan.columns, plan.num_shards)
    if plan.form == "webdataset":
        return RecordFiles(TAR_SAMPLES, folder, plan.columns, plan.num_shards)
    return PreparedWriter(folder, plan.columns, plan.num_samples)


def index_file(plan: ConversionPlan, index: PreparedIndex) -> tuple[str, str]:
    """Return name and text of the file that describes the target."""
    if plan.form == PREPARED:
        return INDEX, render(index)
    return SHARED_INDEX, render(dataclasses.replace(index, format=plan.form))
