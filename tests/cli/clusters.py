"""Clusters of Ray on one machine."""

import socket
from contextlib import ExitStack, contextmanager

import pytest

from pdrn.workers import RAY_SETTINGS


def small_node(cluster):
    """Add a node of one CPU, without dashboard and log monitor.

    With named ports, Ray does not time out waiting for processes that would choose them.
    """
    ports = (
        "metrics_agent_port",
        "metrics_export_port",
        "dashboard_agent_listen_port",
        "runtime_env_agent_port",
    )
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in ports]
        for each in sockets:
            each.bind(("", 0))
        free = [each.getsockname()[1] for each in sockets]
    return cluster.add_node(
        num_cpus=1,
        object_store_memory=80 << 20,
        include_dashboard=False,
        include_log_monitor=False,
        no_monitor=True,
        **dict(zip(ports, free, strict=True)),
    )


@contextmanager
def two_nodes():
    """A cluster of two nodes with one CPU each; ``second`` may be killed."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in RAY_SETTINGS.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster

        cluster = Cluster()
        small_node(cluster)
        cluster.second = small_node(cluster)
        yield cluster
        cluster.shutdown()
