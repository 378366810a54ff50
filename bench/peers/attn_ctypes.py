"""attn_ctypes.py: the few functions of libattn's C interface that the peers' bench calls, by ctypes.

Structs are declared up to the last field that is used here; their first field, the size, says so to the library.
"""
import ctypes as c

DTYPES = {"f32": (2, 32), "bf16": (4, 16), "f16": (2, 16), "bool": (6, 8), "i32": (0, 32)}  # DLPack code and bits
CPU, CUDA = 1, 2  # DLPack device types
KIND_TEXT = 2048


class DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("ndim", c.c_int32),
                ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class Error(c.Structure):
    _fields_ = [("size", c.c_uint32), ("status", c.c_int32), ("kind", c.c_int32), ("reserved", c.c_int32),
                ("text", c.c_char * KIND_TEXT)]


class Options(c.Structure):
    _fields_ = [("size", c.c_uint32), ("threads", c.c_int32), ("backend", c.c_char_p), ("config", c.c_char_p),
                ("platform", c.c_char_p), ("isa", c.c_char_p), ("module_path", c.c_char_p)]


class LayerOptions(c.Structure):
    _fields_ = [("size", c.c_uint32), ("flags", c.c_uint32), ("role", c.c_char_p), ("category", c.c_char_p),
                ("prefix", c.c_char_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("heads", c.c_int64),
                ("kv_heads", c.c_int64), ("head_dim", c.c_int64), ("value_head_dim", c.c_int64), ("scale", c.c_double),
                ("softcap", c.c_double), ("causal", c.c_int32), ("alignment", c.c_int32)]


class LayerInfo(c.Structure):
    _fields_ = [("size", c.c_uint32), ("explicit_choice", c.c_int32), ("backend", c.c_char_p),
                ("implementation", c.c_char_p), ("source", c.c_char_p), ("reason", c.c_char_p), ("plan", c.c_char_p)]


class Args(c.Structure):
    _fields_ = [("size", c.c_uint32), ("flags", c.c_uint32), ("q", c.POINTER(DLTensor)), ("k", c.POINTER(DLTensor)),
                ("v", c.POINTER(DLTensor)), ("out", c.POINTER(DLTensor))] + [
                    (name, c.POINTER(DLTensor)) for name in (
                        "lse", "mask", "key_mask", "kv_lengths", "cu_seqlens_q", "cu_seqlens_k", "sinks", "scores", "joint_q",
                        "joint_k", "joint_v", "joint_out", "joint_key_mask")] + [
                            ("spans", c.c_void_p), ("query_ranges", c.c_void_p), ("cancel", c.c_void_p), ("stream", c.c_void_p),
                            ("workspace", c.c_void_p), ("workspace_bytes", c.c_size_t), ("query_start", c.c_int64),
                            ("mask_kind", c.c_int32), ("scores_mode", c.c_int32), ("joint_order", c.c_int32),
                            ("span_count", c.c_uint32), ("query_range_count", c.c_uint32), ("reserved", c.c_uint32),
                            ("block_map", c.c_void_p)]


class BlockMap(c.Structure):
    _fields_ = [("size", c.c_uint32), ("flags", c.c_uint32), ("block_q", c.c_int64), ("block_k", c.c_int64),
                ("q_len", c.c_int64), ("kv_len", c.c_int64), ("counts", c.POINTER(DLTensor)),
                ("blocks", c.POINTER(DLTensor))]


class AttnError(Exception):
    """A failure of the library, with its own sentence."""


def tensor(array, dtype):
    """A DLTensor over a contiguous numpy array, which must outlive it."""
    code, bits = DTYPES[dtype]
    shape = (c.c_int64 * array.ndim)(*array.shape)
    made = DLTensor(array.ctypes.data, 1, 0, array.ndim, code, bits, 1, shape, None, 0)
    made.keep = (array, shape)
    return made


def device_tensor(array, dtype):
    """The same over a torch tensor on a CUDA device, with its own strides."""
    code, bits = DTYPES[dtype]
    shape, strides = (c.c_int64 * array.ndim)(*array.shape), (c.c_int64 * array.ndim)(*array.stride())
    made = DLTensor(array.data_ptr(), CUDA, array.device.index or 0, array.ndim, code, bits, 1, shape, strides, 0)
    made.keep = (array, shape, strides)
    return made


class Library:
    """libattn.so with one open context."""

    def __init__(self, path, threads, module_path="", backend=None):
        self.lib = c.CDLL(path)
        self.lib.attn_version.restype = c.c_char_p
        self.lib.attn_close.argtypes = self.lib.attn_layer_close.argtypes = [c.c_void_p]
        self.lib.attn_close.restype = self.lib.attn_layer_close.restype = None
        self.lib.attn_layer_get_info.argtypes = [c.c_void_p, c.POINTER(LayerInfo)]
        self.lib.attn_layer_get_info.restype = None
        self.lib.attn_layer_open.argtypes = [c.c_void_p, c.POINTER(LayerOptions), c.POINTER(c.c_void_p),
                                             c.POINTER(Error)]
        self.lib.attn_forward.argtypes = [c.c_void_p, c.POINTER(Args), c.POINTER(Error)]
        self.context = c.c_void_p()
        options = Options(size=c.sizeof(Options), threads=threads, module_path=module_path.encode(),
                          backend=backend.encode() if backend else None)
        self._call(self.lib.attn_open, c.byref(options), c.byref(self.context))

    def version(self):
        """The library's version as text."""
        return self.lib.attn_version().decode()

    def _call(self, function, *arguments):
        error = Error(size=c.sizeof(Error))
        if function(*arguments, c.byref(error)):
            raise AttnError(error.text.decode())

    def layer(self, q, k, v, out, dtype):
        """A callable that runs attention over arrays [B, S, H, D], and its plan as a second callable."""
        options = LayerOptions(size=c.sizeof(LayerOptions), heads=q.shape[2], kv_heads=k.shape[2],
                               head_dim=q.shape[3], value_head_dim=v.shape[3])
        layer = c.c_void_p()
        self._call(self.lib.attn_layer_open, self.context, c.byref(options), c.byref(layer))
        tensors = [tensor(array, dtype) for array in (q, k, v, out)]
        args = Args(c.sizeof(Args), 0, *[c.pointer(t) for t in tensors])
        error = Error(size=c.sizeof(Error))
        forward, at, where = self.lib.attn_forward, c.byref(args), c.byref(error)

        def run():
            if forward(layer, at, where):
                raise AttnError(error.text.decode())

        def plan():
            info = LayerInfo(size=c.sizeof(LayerInfo))
            self.lib.attn_layer_get_info(layer, c.byref(info))
            return info.plan.decode()

        run.keep = (tensors, args, error)
        run.close = lambda: self.lib.attn_layer_close(layer)
        return run, plan

    def device_layer(self, q, causal, kv_heads, value_dim):
        """An open layer for torch tensors [B, S, H, D] on q's device; forward(sets of arguments) runs it."""
        options = LayerOptions(size=c.sizeof(LayerOptions), heads=q.shape[2], kv_heads=kv_heads, head_dim=q.shape[3],
                               value_head_dim=value_dim, device_type=CUDA, device_id=q.device.index or 0, causal=causal)
        layer = c.c_void_p()
        self._call(self.lib.attn_layer_open, self.context, c.byref(options), c.byref(layer))
        return layer

    def device_call(self, layer, q, k, v, out, dtype, key_mask, stream, block_map=None):
        """A callable that enqueues one forward call of a layer on a stream. block_map: (block, counts, lists)."""
        tensors = [device_tensor(t, dtype) for t in (q, k, v, out)]
        args = Args(c.sizeof(Args), 0, *[c.pointer(t) for t in tensors])
        if key_mask is not None:
            tensors.append(device_tensor(key_mask, "bool"))
            args.key_mask = c.pointer(tensors[-1])
        args.stream = stream
        if block_map is not None:
            block, counts, lists = block_map
            tensors += [device_tensor(counts, "i32"), device_tensor(lists, "i32")]
            tensors.append(BlockMap(c.sizeof(BlockMap), 0, block, block, 0, 0, c.pointer(tensors[-2]),
                                    c.pointer(tensors[-1])))
            args.block_map = c.cast(c.pointer(tensors[-1]), c.c_void_p)
        error = Error(size=c.sizeof(Error))
        forward, at, where = self.lib.attn_forward, c.byref(args), c.byref(error)

        def run():
            if forward(layer, at, where):
                raise AttnError(error.text.decode())

        run.keep = (tensors, args, error)
        return run

    def implementation(self, layer):
        """The implementation behind a layer and what its last call was."""
        info = LayerInfo(size=c.sizeof(LayerInfo))
        self.lib.attn_layer_get_info(layer, c.byref(info))
        return "%s: %s" % (info.implementation.decode(), (info.plan or b"").decode())

    def close(self):
        """Closes the context; layers must be closed before."""
        self.lib.attn_close(self.context)
