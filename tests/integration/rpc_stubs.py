"""Python stubs generated from the project's .proto files with the stock compiler."""
import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Stubs:
    """The generated modules: events, records, service (and its _grpc), health, reflection."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="driftline-stubs-")
        protos = sorted((ROOT / "proto").rglob("*.proto"))
        subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={ROOT / 'proto'}",
             f"--python_out={self.folder.name}", f"--grpc_python_out={self.folder.name}",
             *map(str, protos)],
            check=True)
        # The packages grpc/health and grpc/reflection would shadow grpcio's own.
        import grpc
        grpc.__path__.append(f"{self.folder.name}/grpc")
        sys.path.insert(0, self.folder.name)
        load = importlib.import_module
        self.event = load("driftline.v1.event_pb2")
        self.records = load("driftline.v1.records_pb2")
        self.service = load("driftline.v1.service_pb2")
        self.service_grpc = load("driftline.v1.service_pb2_grpc")
        self.health = load("grpc.health.v1.health_pb2")
        self.health_grpc = load("grpc.health.v1.health_pb2_grpc")
        self.reflection = load("grpc.reflection.v1.reflection_pb2")
        self.reflection_grpc = load("grpc.reflection.v1.reflection_pb2_grpc")
        self.reflection_alpha = load("grpc.reflection.v1alpha.reflection_pb2")
        self.reflection_alpha_grpc = load("grpc.reflection.v1alpha.reflection_pb2_grpc")


_stubs = None


def stubs():
    global _stubs
    if _stubs is None:
        _stubs = Stubs()
    return _stubs
