"""peers.py: other libraries' attention, each behind the same two functions.

A peer is a class with `name`, `needs` (PyPI packages), `missing()` (None, or why it cannot be imported), and
`prepare(problem, threads)`, which returns a callable that runs the problem once and a callable that gives the result as
float32 [B, S, H, D]. prepare raises Refused when the library does not do this problem on a CPU.
"""
import importlib

import numpy as np


class Refused(Exception):
    """The peer does not do this problem; the text says what it said."""


def bf16_bits(array):
    """float32 values that are exact in bf16, as their upper halves."""
    return np.ascontiguousarray((array.view(np.uint32) >> 16).astype(np.uint16))


def from_bf16(bits):
    """The other direction."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def heads_first(array):
    """[B, S, H, D] as a contiguous [B, H, S, D], the layout that these libraries like best."""
    return np.ascontiguousarray(array.transpose(0, 2, 1, 3))


class Peer:
    """What peers have in common."""
    name, needs, modules = "", (), ()

    @classmethod
    def missing(cls):
        """None, or why the peer's packages cannot be used."""
        for module in cls.modules:
            try:
                importlib.import_module(module)
            except Exception as why:  # an installed package may fail to load in any way
                return "%s: %s" % (module, why)
        return None

    @classmethod
    def version(cls):
        """The version of the peer's first package."""
        return importlib.import_module(cls.modules[0]).__version__


class Torch(Peer):
    """PyTorch's scaled_dot_product_attention as it dispatches by itself: its own CPU flash kernel for most shapes."""
    name, needs, modules = "PyTorch SDPA", ("torch",), ("torch",)
    math = False

    def prepare(self, problem, threads):
        import contextlib

        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        torch.set_num_threads(threads)
        q, k, v = [self.tensor(torch, heads_first(a), problem.dtype) for a in (problem.q, problem.k, problem.v)]
        grouped = problem.heads != problem.kv_heads
        held = {}

        def run():
            with torch.inference_mode(), (sdpa_kernel(SDPBackend.MATH) if self.math else contextlib.nullcontext()):
                held["out"] = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=grouped)

        def result():
            return held["out"].to(torch.float32).numpy().transpose(0, 2, 1, 3)

        return run, result

    @staticmethod
    def tensor(torch, array, dtype):
        """The array in torch's memory and dtype."""
        if dtype == "f32":
            return torch.from_numpy(array)
        return torch.from_numpy(bf16_bits(array).view(np.int16)).view(torch.bfloat16)


class TorchMath(Torch):
    """The same without a fused kernel: two batched matrix products and a softmax."""
    name, math = "PyTorch SDPA, unfused", True


class OrtMha(Peer):
    """ONNX Runtime's com.microsoft MultiHeadAttention over [B, S, H D]."""
    name, needs, modules = "ONNX Runtime MHA", ("onnxruntime", "onnx"), ("onnxruntime", "onnx")

    def model(self, onnx, problem):
        if problem.heads != problem.kv_heads:
            raise Refused("MultiHeadAttention has no grouped heads")
        node = onnx.helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["out"], domain="com.microsoft",
                                     num_heads=problem.heads)
        return node, [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]

    def shaped(self, array):
        return np.ascontiguousarray(array.reshape(array.shape[0], array.shape[1], -1))

    def unshaped(self, out, problem):
        return out.reshape(problem.batch, problem.q_len, problem.heads, problem.head_dim)

    def session(self, problem, threads, arrays):
        import onnx
        import onnxruntime as ort
        node, opsets = self.model(onnx, problem)
        info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
                for name in ("q", "k", "v", "out")]
        for value, array in zip(info, arrays):
            value.type.tensor_type.shape.CopyFrom(
                onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, array.shape).tensor_type.shape)
        graph = onnx.helper.make_graph([node], "attention", info[:3], info[3:])
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # Workers that spin between calls would take the cores from the other candidates.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def prepare(self, problem, threads):
        if problem.dtype != "f32":
            raise Refused("no bf16 kernel on CPUs")
        import onnxruntime as ort
        arrays = [self.shaped(a) for a in (problem.q, problem.k, problem.v)]
        try:
            session = self.session(problem, threads, arrays)
            binding = session.io_binding()
            values = [ort.OrtValue.ortvalue_from_numpy(a) for a in arrays]
            for name, value in zip("qkv", values):
                binding.bind_ortvalue_input(name, value)
            binding.bind_output("out")
            session.run_with_iobinding(binding)
        except Exception as why:
            raise Refused(str(why).splitlines()[0][:200]) from why

        def run():
            session.run_with_iobinding(binding)

        run.keep = (arrays, values)
        return run, lambda: self.unshaped(binding.copy_outputs_to_cpu()[0], problem)


class OrtAttention(OrtMha):
    """ONNX Runtime's standard operator Attention (opset 23) over [B, H, S, D]."""
    name = "ONNX Runtime Attention"

    def model(self, onnx, problem):
        node = onnx.helper.make_node("Attention", ["q", "k", "v"], ["out"])
        return node, [onnx.helper.make_opsetid("", 23)]

    def shaped(self, array):
        return heads_first(array)

    def unshaped(self, out, problem):
        return out.transpose(0, 2, 1, 3)


class NumpyBlas(Peer):
    """Unfused attention in numpy: matrix products by its OpenBLAS, the softmax as array operations."""
    name, needs, modules = "numpy, unfused", ("numpy",), ("numpy",)

    def prepare(self, problem, threads):
        if problem.dtype != "f32":
            raise Refused("numpy has no bf16 products")
        group = problem.heads // problem.kv_heads
        q, k, v = [heads_first(a) for a in (problem.q, problem.k, problem.v)]
        b, h, s, d = q.shape
        q = (q * np.float32(1 / np.sqrt(d))).reshape(b, problem.kv_heads, group * s, d)
        kt = k.transpose(0, 1, 3, 2)
        held = {}

        def run():
            scores = np.matmul(q, kt)
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            held["out"] = np.matmul(scores, v)

        return run, lambda: held["out"].reshape(b, h, s, -1).transpose(0, 2, 1, 3)


ALL = (Torch, TorchMath, OrtMha, OrtAttention, NumpyBlas)
