"""Names of JAX and PyTorch for programs on several devices and processes, and nnc's."""

from __future__ import annotations

from nnc.errors.names.rows import Row, Rows

_SPLIT: Row = (
    "nnc.distributed.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)",
    "arrays have no sharding of their own: `shard_map` and `nnc.distributed.data_parallel` split them",
)
_MESH: Row = ("nnc.distributed.make_mesh((4,), ('data',))", "is passed to `nnc.distributed.shard_map` as mesh=")
_START: Row = (
    "nnc.distributed.size()",
    "`python -m nnc.distributed run -n 4 train.py` starts the processes, without a call in the program",
)
_END: Row = ("nnc.distributed.size()", "processes end with the program, without a call")
_LOCAL: Row = (
    "nnc.data.batches(arrays, batch, key, share=(rank, size))",
    "each process takes its rows; `nnc.distributed.data_parallel` reads them with `local_batch=True`",
)

JAX_SHARDING: Rows = {
    **{
        name: f"nnc.distributed.{name}"
        for name in ("Mesh", "PartitionSpec")
    },
    **dict.fromkeys(("P", "PS"), "nnc.distributed.PartitionSpec"),
    **dict.fromkeys(
        ("sharding", "Sharding", "NamedSharding", "PositionalSharding", "GSPMDSharding", "with_sharding_constraint", "reshard"),
        _SPLIT,
    ),
    **dict.fromkeys(("SingleDeviceSharding", "make_single_device_sharding"), "nnc.device_put(x, 'cpu')"),
    **dict.fromkeys(("AbstractMesh", "set_mesh", "use_mesh", "get_mesh", "get_abstract_mesh", "use_abstract_mesh"), _MESH),
    **dict.fromkeys(("auto_axes", "explicit_axes", "AxisType"), _SPLIT),
}  # fmt: skip

JAX_DISTRIBUTED: Rows = {
    **dict.fromkeys(("initialize", "is_initialized"), _START),
    "shutdown": _END,
    **dict.fromkeys(("process_index", "host_id"), "nnc.distributed.rank()"),
    **dict.fromkeys(("process_count", "host_count"), "nnc.distributed.size()"),
    **dict.fromkeys(("process_indices", "host_ids"), "range(nnc.distributed.size())"),
}

JAX_EXPERIMENTAL: Rows = {
    "experimental": ("nnc.distributed.shard_map", "`mesh_utils` is `nnc.distributed.make_mesh`"),
    "shard_map": "nnc.distributed.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)",
    "smap": "nnc.distributed.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)",
    **dict.fromkeys(("mesh_utils", "create_device_mesh", "create_hybrid_device_mesh", "make_mesh"), _MESH),
    **dict.fromkeys(("pjit", "xmap"), _SPLIT),
    **dict.fromkeys(
        (
            "make_array_from_callback", "make_array_from_process_local_data", "make_array_from_single_device_arrays",
            "device_put_sharded", "host_local_array_to_global_array",
        ),
        _LOCAL,
    ),
    "device_put_replicated": ("x", "arguments that are not split are the same at all places"),
    "process_allgather": ("nnc.all_gather(x, axis_name)", "within `nnc.distributed.shard_map`"),
    "multihost_utils": ("nnc.all_gather(x, axis_name)", "within `nnc.distributed.shard_map`"),
    "sync_global_devices": ("nnc.block_until_ready(x)", "processes wait for one another in collectives"),
    "io_callback": ("nnc.debug.callback(f, x)", "for a value that comes back `nnc.pure_callback`"),
    "host_callback": ("nnc.debug.callback(f, x)", "for a value that comes back `nnc.pure_callback`"),
    "compilation_cache": ("nnc.compile(f)", "programs are kept on disk, in the folder that NNC_CACHE_DIR names"),
    **dict.fromkeys(
        ("pallas", "pallas_call"), ("nnc.compile(f)", "kernels are printed by nnc; CONTRIBUTING.md says how to add one")
    ),
    "ode": "nnc.scipy.integrate.solve_ivp(f, (0, 1), y)",
    "checkify": ("nnc.debug.check_finite()", "or `nnc.debug.callback(f, x)`"),
    "sparse": ("nnc.numpy.segment_sum", "arrays are dense"),
    "jet": ("nnc.jvp(f, primals, tangents)", "once for each order"),
    "jax2tf": ("nnc.io.save(path, tree)", "safetensors files load anywhere"),
    "optimizers": ("nnc.optim", "whose names are Optax's"),
    "stax": "nnc.nn",
}  # fmt: skip

TORCH_DISTRIBUTED: Rows = {
    **dict.fromkeys(("init_process_group", "is_available"), _START),
    "destroy_process_group": _END,
    "get_rank": "nnc.distributed.rank()",
    "get_world_size": "nnc.distributed.size()",
    "all_reduce": ("nnc.psum(x, axis_name)", "or `nnc.pmean`, `nnc.pmax`, `nnc.pmin`"),
    "all_gather_into_tensor": "nnc.all_gather(x, axis_name, tiled=True)",
    "reduce_scatter": "nnc.psum_scatter(x, axis_name)",
    "reduce_scatter_tensor": "nnc.psum_scatter(x, axis_name, tiled=True)",
    "all_to_all_single": "nnc.all_to_all(x, axis_name, 0, 0, tiled=True)",
    **dict.fromkeys(("isend", "irecv", "send", "recv"), ("nnc.ppermute(x, axis_name, [(0, 1)])", "sender and receiver alike")),
    **dict.fromkeys(("barrier", "monitored_barrier"), ("nnc.psum(x, axis_name)", "collectives wait for all processes")),
    **dict.fromkeys(("init_device_mesh", "DeviceMesh", "device_mesh"), _MESH),
    **dict.fromkeys(("DTensor", "distribute_tensor", "Shard", "Replicate"), _SPLIT),
    "DistributedSampler": _LOCAL,
    **dict.fromkeys(
        ("FullyShardedDataParallel", "fully_shard"),
        ("nnc.optim.sharded(optimizer, axis_name)", "splits the optimizer's state"),
    ),
    "parallelize_module": "nnc.nn.tensor_parallel(model, axis_name)",
}  # fmt: skip
