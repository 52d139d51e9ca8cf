"""The settings of the service, from environment variables that begin with TESSERA_, or from files (API-2)."""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SecretsSettingsSource, SettingsConfigDict

MIB = 1024 * 1024
GIB = 1024 * MIB

Positive = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0)]


_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._-]+)*")
_NAME = re.compile(r"[a-z0-9._-]+")


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip().lower())]


def default_data_dir() -> Path:
    """Where the embedded service keeps its data unless told otherwise."""
    return Path.home() / ".local" / "share" / "tessera"


class Settings(BaseSettings):
    """All settings of the service; immutable once read."""

    model_config = SettingsConfigDict(env_prefix="TESSERA_", frozen=True, extra="ignore")

    secrets_dir: Path | None = None
    """A folder with a file for each setting that no variable gives, named as the variable in lower case."""
    broker_url: str | None = None
    """Redis of the queue and of the job records; with `cache_url` set too, nothing is embedded."""
    cache_url: str | None = None
    """Redis for data that may be lost: references to results."""
    data_dir: Path = Field(default_factory=default_data_dir)
    """Blob store or local copies of blobs, and the embedded Redis' data and logs."""
    store_url: str | None = None
    """Where blobs are kept: `s3://bucket/prefix`, of any S3-compatible service; without it, in `data_dir`."""
    store_endpoint: str | None = None
    """URL of the S3-compatible service, unless AWS_ENDPOINT_URL says it or it is Amazon's."""
    store_region: str | None = None
    """Region of the bucket, unless AWS_REGION says it."""
    store_path_style: bool = True
    """Whether the bucket stands in the path of requests, or else in the name of their host."""
    store_copies_bytes: Positive = 10 * GIB
    """Upper bound of the local copies of blobs, for models and documents each; those in use come on top."""
    store_answer_s: Seconds = 0.9
    """The API gives up a request to S3 on which no byte comes for this time."""
    store_patience_s: Seconds = 20.0
    """The same for workers, and for parts of uploads."""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    allowed_hosts: str = ""
    """Further names that requests may give as their host, with any port; separated by commas."""

    max_upload_bytes: Positive = 2 * GIB
    max_document_bytes: Positive = MIB
    """Upper bound of profiles, options and JSON bodies."""
    max_waiting_jobs: Positive = 20_000
    """Further jobs are refused while as many wait or run; each point of a sweep counts."""
    require_keys: Literal["auto", "always"] = "auto"
    """Whether requests without a key are refused: `auto` beyond loopback, `always` there too."""
    key_stored_bytes: Positive = 20 * GIB
    """Bytes of models and files of an owner. This and the next five are for keys without limits of their own."""
    key_stored_items: Positive = 10_000
    """Models and profiles of an owner."""
    key_waiting_jobs: Positive = 2_000
    """Jobs of an owner that may wait or run; each point of a sweep counts."""
    key_sweep_points: Positive = 1024
    """Points of one sweep."""
    key_uploads: Positive = 8
    """Uploads of an owner at once, of each API process."""
    key_requests_per_minute: Positive = 6_000
    """Requests with one key; as many may come at once."""
    max_wait_s: Seconds = 30.0
    """Upper bound of `Prefer: wait=N`."""

    max_connections: Positive = 2048
    """Connections of callers at once; fewer if the process may not open twice as many files, and 160."""
    max_head_bytes: Positive = 64 * 1024
    """Upper bound of the target and the headers of a request."""
    head_timeout_s: Seconds = 10.0
    """A connection on which the head of a request has not arrived after this time is closed."""
    idle_timeout_s: Seconds = 5.0
    """A connection is closed when its next request has not begun after this time."""
    stall_s: Seconds = 20.0
    """A connection is closed when for this long no byte of a body arrives, or an answer is not taken."""

    worker_concurrency: Positive = 1
    worker_max_tasks_per_child: Positive = 100
    worker_max_memory_per_child_bytes: Positive = 2 * GIB
    """A child above this after a task is replaced."""

    lease_s: Seconds = 10.0
    """A worker that is silent for this long counts as lost."""
    hung_after_s: Seconds = 60.0
    """The embedded service restarts a Redis, the API or the worker if it gives no sign of life for this long."""
    max_attempts: Positive = 3
    time_limit_s: Seconds = 600.0
    """Default and upper bound of the option of the same name."""
    memory_limit_bytes: Positive = 4 * GIB
    """Default and upper bound of the option of the same name."""
    stop_grace_s: Seconds = 2.0
    """A worker child that was told to stop and still runs after this time ends itself."""
    first_resend_s: Seconds = 2.0
    """A message that no worker has taken up is sent again after this time, then after twice as long, and so on."""
    last_resend_s: Seconds = 60.0
    relay_interval_s: Seconds = 0.2
    rekey_after_s: Seconds = 60.0
    """Jobs for whose version of the compiler no worker lives for this long are given to workers of the present one."""
    long_model_bytes: Positive = 256 * MIB
    """Models from this size go to the queue `long`."""

    keep_finished_s: Seconds = 7 * 24 * 3600.0
    keep_unused_s: Seconds = 24 * 3600.0
    """Blobs that nothing refers to, and remains of uploads, are removed after this time."""
    keep_results_bytes: Positive | None = None
    """Above this many bytes of plans, programs and other documents, the results asked for longest ago are removed."""
    collect_interval_s: Seconds = 3600.0
    """One of the API processes looks for blobs to remove once in this time."""
    keep_idempotency_s: Seconds = 24 * 3600.0
    keep_result_s: Seconds = 30 * 24 * 3600.0
    keep_table_s: Seconds = 30 * 24 * 3600.0
    table_lock_s: Seconds = 2.0
    """The longest time that the maker of a simple table holds its lock; then another makes the table."""
    keep_unit_s: Seconds = 30 * 24 * 3600.0
    """Shape units that no compilation used for this time leave the cache."""
    unit_lock_s: Seconds = 30.0
    """The longest time that a library of units is locked for its builder; compilations that waited so long go on."""
    optimise_lock_s: Seconds = 30.0
    """An optimised table that has not arrived after this time may be requested again."""
    known_answers_bytes: Positive = 64 * MIB
    """Plans, reports, finished jobs and final tables of shapes that the API keeps in memory, as answered."""
    open_packages: Positive = 16
    """Packages that one process keeps open."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments win over variables, and variables over the files of `secrets_dir`."""
        folder = os.environ.get("TESSERA_SECRETS_DIR")
        if folder and Path(folder).is_dir():
            file_secret_settings = SecretsSettingsSource(settings_cls, folder)
        return (init_settings, env_settings, dotenv_settings, file_secret_settings)

    @field_validator("secrets_dir")
    @classmethod
    def _folder(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_dir():
            raise ValueError(f"{value} is no folder")
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper_case(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @field_validator("store_url")
    @classmethod
    def _bucket(cls, value: str | None) -> str | None:
        if value is not None and not _BUCKET.fullmatch(value):
            raise ValueError(f"{value!r} is no bucket: it reads s3://BUCKET or s3://BUCKET/PREFIX")
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _names_alone(cls, value: str) -> str:
        wrong = next((name for name in _names(value) if not _NAME.fullmatch(name)), None)
        if wrong is not None:
            raise ValueError(f"{wrong!r} is no host name or IPv4 address (no scheme, no port)")
        return value

    @model_validator(mode="after")
    def _both_urls_or_none(self) -> Self:
        if (self.broker_url is None) != (self.cache_url is None):
            raise ValueError("set both TESSERA_BROKER_URL and TESSERA_CACHE_URL, or neither")
        return self

    @property
    def allowed_names(self) -> frozenset[str]:
        """The names in `allowed_hosts`, in lower case."""
        return frozenset(_names(self.allowed_hosts))

    @property
    def listens_on_loopback(self) -> bool:
        """Whether this machine reaches the service by its loopback names, as it does where it listens everywhere."""
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            return self.host.lower() == "localhost"
        return address.is_loopback or address.is_unspecified

    @property
    def keys_required(self) -> bool:
        """Whether every request needs a key, as where others than this machine's users may send them."""
        return self.require_keys == "always" or not self.reached_on_loopback_alone

    @property
    def reached_on_loopback_alone(self) -> bool:
        """Whether the service listens on loopback, and is known by no other names."""
        try:
            is_loopback = ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            is_loopback = self.host.lower() == "localhost"
        return is_loopback and not self.allowed_names

    @property
    def store_dir(self) -> Path:
        """The directory of the blob store."""
        return self.data_dir / "blobs"

    @property
    def copies_dir(self) -> Path:
        """The directory of local copies of blobs that are kept elsewhere."""
        return self.data_dir / "copies"

    @property
    def embedded(self) -> bool:
        """Whether we start Redis and the worker ourselves (API-2)."""
        return self.broker_url is None

    @property
    def hard_time_limit_s(self) -> float:
        """Celery's own limit: the last resort, above every limit that we enforce ourselves."""
        return self.time_limit_s + 10 * self.stop_grace_s

    @property
    def upload_pin_s(self) -> float:
        """The longest time from the last byte of an upload, over its way into a bucket, to its record."""
        return 60.0 if self.store_url is None else 600.0

    @property
    def pin_s(self) -> float:
        """The longest time from the writing of a blob to the record that refers to it."""
        return 2 * self.hard_time_limit_s + 600

    @property
    def visibility_timeout_s(self) -> int:
        """Longer than the longest task, as otherwise Celery would deliver a running task again (API-6)."""
        return int(2 * self.hard_time_limit_s) + 60
