"""JAX's names and nnc's."""

from __future__ import annotations

from nnc.errors.names.rows import Rows, words

JAX: Rows = {
    "jit": "nnc.compile(f)",
    "pmap": ("nnc.vmap(f, axis_name='i')", "maps over one device"),
    "remat": "nnc.checkpoint(f)",
    "make_jaxpr": "nnc.make_graph(f)",
    "jacobian": "nnc.jacrev(f)",
    "named_call": "f",
    "named_scope": ("f", "steps of a program name the user's lines by themselves"),
    "device_get": "np.asarray(x)",
    "device_count": "len(nnc.devices())",
    "local_device_count": "len(nnc.devices())",
    "local_devices": "nnc.devices()",
    "default_backend": "nnc.devices()[0]",
    "default_matmul_precision": (
        "nnc.compile(f, precision='tf32')",
        "without it products of float32 are computed in float32",
    ),
    "disable_jit": "nnc.debug.eager()",
    "debug_nans": "nnc.debug.check_finite()",
    "debug_infs": "nnc.debug.check_finite()",
    "debug_key_reuse": "nnc.debug.check_keys()",
    "enable_x64": ("x.astype('float64')", "float64 is always there, and stays float64"),
    "numpy_dtype_promotion": "nnc.debug.promotion('error')",
    "transfer_guard": "nnc.debug.transfers('error')",
    "explain_cache_misses": "nnc.debug.explain(f)",
    "log_compiles": "nnc.debug.explain(f)",
    "closure_convert": ("nnc.custom_vjp(f)", "pass captured values as arguments"),
    "custom_gradient": "nnc.custom_vjp(f)",
    "custom_derivatives": ("nnc.custom_vjp(f)", "or `nnc.custom_jvp`"),
    "checkpoint_policies": ("nnc.checkpoint(f)", "around the parts that are to be computed again"),
    "print_environment_info": ("nnc.devices()", "`python -m nnc doctor` prints more"),
    "profiler": "nnc.debug.profile",
    "typeof": "x.spec",
    "lax": ("nnc.scan", "control flow stands in nnc itself, operators in `nnc.numpy`"),
    "tree_util": "nnc.tree",
    "flatten_util": "nnc.tree.ravel(tree)",
    "image": "nnc.nn.upsample",
    "ops": "nnc.numpy.segment_sum",
    "export": ("nnc.compile(f).lower(x).compile()", "compiled programs are kept on disk by themselves"),
    "typing": "nnc.typing",
    "dtypes": "nnc.numpy.result_type(x, y)",
    "config": ("nnc.compile(f, device='cpu')", "settings are arguments"),
    "Device": "nnc.devices()",
    "live_arrays": "nnc.debug.profile(f)",
    "float0": "np.zeros(shape)",
    "ad_checkpoint": "nnc.checkpoint(f)",
    "core": ("nnc.graph", "`nnc.make_graph(f)` is the graph of a function"),
    "extend": ("nnc.graph", "`nnc.make_graph(f)` is the graph of a function"),
    "interpreters": ("nnc.graph", "`nnc.make_graph(f)` is the graph of a function"),
    "custom_batching": ("nnc.custom_vjp(f)", "commands have batching rules; functions of users are made of commands"),
    "stages": ("nnc.compile(f).lower(x)", "and `nnc.compile(f).lower(x).compile()`"),
    "ffi": ("nnc.pure_callback(f, shapes, x)", "a C function is called by ctypes within f"),
    "clear_caches": "nnc.compile(f).cache_clear()",
    "effects_barrier": "nnc.block_until_ready(x)",
    "copy_to_host_async": "np.asarray(x)",
    "ensure_compile_time_eval": "np.asarray(values)",
    "check_tracer_leaks": ("nnc.compile(f)", "a tracer that is used after its trace is an error without a setting"),
    "checking_leaks": ("nnc.compile(f)", "a tracer that is used after its trace is an error without a setting"),
    "numpy_rank_promotion": ("nnc.numpy.expand_dims(x, axis)", "shapes broadcast as in NumPy, without a setting"),
    **{
        f"transfer_guard_{way}": "nnc.debug.transfers('error')"
        for way in ("device_to_device", "device_to_host", "host_to_device")
    },
    **dict.fromkeys(
        ("TraceAnnotation", "StepTraceAnnotation", "start_trace", "annotate_function"), "nnc.debug.profile(f)"
    ),
    "device_memory_profile": ("nnc.debug.profile(f)", "`nnc.debug.tape_memory` shows values that gradients need"),
    "default_prng_impl": ("nnc.random.key(seed)", "keys are those of threefry2x32"),
    "experimental.ode.odeint": (
        "nnc.scipy.integrate.solve_ivp(f, (0, 1), y)",
        "`method=` names RK45, Dopri8 and others",
    ),
}

JAX_NUMPY: Rows = {
    "fromfile": "nnc.numpy.asarray(np.fromfile(path))",
    "load": "nnc.io.load(path)",
    "save": "nnc.io.save(path, tree)",
    "savez": "nnc.io.save(path, tree)",
    "fromstring": "nnc.numpy.frombuffer(buffer)",
    "frompyfunc": "nnc.numpy.vectorize(f)",
    "object_": ("nnc.tree.map", "arrays of objects are pytrees"),
    "DeviceArray": "nnc.Array",
    "clip_by_value": "nnc.numpy.clip(x, low, high)",
    "row_stack": "nnc.numpy.vstack(arrays)",
    "in1d": "nnc.numpy.isin(x, y)",
    "trapz": "nnc.numpy.trapezoid(y)",
    "product": "nnc.numpy.prod(x)",
    "cumproduct": "nnc.numpy.cumprod(x)",
    "sometrue": "nnc.numpy.any(x)",
    "alltrue": "nnc.numpy.all(x)",
    "round_": "nnc.numpy.round(x)",
    "msort": "nnc.numpy.sort(x, axis=0)",
    "asfarray": "nnc.numpy.asarray(x, 'float64')",
    "Inf": "nnc.numpy.inf",
    "NaN": "nnc.numpy.nan",
}

_SAME = words(  # names of lax that nnc.numpy has, too
    "abs acos acosh add argmax argmin asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor broadcast_shapes "
    "cbrt ceil concatenate conj cos cosh digamma dot empty erf erfc exp exp2 expand_dims expm1 floor "
    "full full_like imag lgamma log log1p nextafter polygamma pow real reciprocal reshape sign sin sinh "
    "sqrt square squeeze stack tan tanh tile top_k transpose unstack"
)

JAX_LAX: Rows = {
    **{name: f"nnc.numpy.{name}" for name in _SAME},
    **{
        name: f"nnc.{name}"
        for name in ("associative_scan", "cond", "fori_loop", "map", "scan", "stop_gradient", "switch", "while_loop")
    },
    "max": "nnc.numpy.maximum(x, y)",
    "min": "nnc.numpy.minimum(x, y)",
    "round": ("nnc.numpy.round(x)", "halves to even, which JAX does not do by default"),
    "split": ("nnc.numpy.split(x, places)", "JAX's takes sizes, nnc's the places of the cuts"),
    "sort": "nnc.numpy.sort(x, axis=-1)",
    "pad": (
        "nnc.numpy.pad(x, ((1, 1), (0, 0)), constant_values=value)",
        "widths are not negative, and nothing is put between elements",
    ),
    **{name: f"nnc.numpy.{name}(x, axis=0)" for name in words("cumsum cumprod cummax cummin")},
    **{name: f"nnc.{name}(x, axis_name)" for name in words("all_gather pmax pmean pmin psum psum_scatter")},
    "all_to_all": "nnc.all_to_all(x, axis_name, split_axis, concat_axis)",
    "ppermute": "nnc.ppermute(x, axis_name, perm)",
    "axis_index": "nnc.axis_index(axis_name)",
    "axis_size": "nnc.axis_size(axis_name)",
    "pcast": "nnc.pvary(x, axis_name)",
    "dynamic_slice": "nnc.dynamic_slice(x, starts, sizes)",
    "dynamic_update_slice": "nnc.dynamic_update_slice(x, update, starts)",
    "dynamic_slice_in_dim": "nnc.dynamic_slice(x, (start, 0), (length, x.shape[1]))",
    "dynamic_update_slice_in_dim": "nnc.dynamic_update_slice(x, update, (start, 0))",
    "dynamic_index_in_dim": ("x[i][None]", "with `keepdims=False` `x[i]`"),
    "dynamic_update_index_in_dim": "x.at[i].set(row)",
    "index_in_dim": ("x[i][None]", "with `keepdims=False` `x[i]`"),
    "index_take": "nnc.numpy.take(x, i, axis=0)",
    "slice": "x[start:stop:step]",
    "slice_in_dim": "x[start:stop]",
    "gather": ("nnc.numpy.take_along_axis(x, i, axis=0)", "or index: `x[i, j]`"),
    "scatter": "x.at[i].set(y)",
    "scatter_add": "x.at[i].add(y)",
    "scatter_sub": "x.at[i].add(-y)",
    "scatter_mul": "x.at[i].multiply(y)",
    "scatter_min": "x.at[i].min(y)",
    "scatter_max": "x.at[i].max(y)",
    "scatter_apply": "x.at[i].apply(f)",
    "select": "nnc.numpy.where(pred, x, y)",
    "select_n": ("nnc.numpy.where(pred, y, x)", "of more than two cases `nnc.numpy.choose`"),
    "clamp": "nnc.numpy.clip(x, low, high)",
    "rsqrt": "1 / nnc.numpy.sqrt(x)",
    "logistic": "nnc.nn.sigmoid(x)",
    "erf_inv": "nnc.numpy.erfinv(x)",
    "neg": "-x",
    "sub": "x - y",
    "mul": "x * y",
    "div": ("x / y", "of integers `x // y`, which rounds down"),
    "rem": "nnc.numpy.fmod(x, y)",
    "integer_pow": "x ** 3",
    "eq": "x == y",
    "ne": "x != y",
    "lt": "x < y",
    "le": "x <= y",
    "gt": "x > y",
    "ge": "x >= y",
    "is_finite": "nnc.numpy.isfinite(x)",
    "population_count": "nnc.numpy.bitwise_count(x)",
    "shift_left": "x << y",
    "shift_right_arithmetic": "x >> y",
    "shift_right_logical": "x.astype('uint32') >> y",
    "convert_element_type": "x.astype(dtype)",
    "bitcast_convert_type": ("np.asarray(x).view(dtype)", "outside of compiled functions"),
    "complex": "x + 1j * y",
    "iota": "nnc.numpy.arange(n)",
    "broadcasted_iota": "nnc.numpy.broadcast_to(nnc.numpy.arange(n), shape)",
    "broadcast": "nnc.numpy.broadcast_to(x, shape)",
    "broadcast_in_dim": "nnc.numpy.broadcast_to(nnc.numpy.expand_dims(x, axes), shape)",
    "broadcast_to_rank": "nnc.numpy.expand_dims(x, axes)",
    "collapse": "nnc.numpy.reshape(x, shape)",
    "rev": "nnc.numpy.flip(x, axes)",
    "sort_key_val": "nnc.numpy.sort(x), y[nnc.numpy.argsort(x)]",
    "approx_max_k": "nnc.numpy.top_k(x, k)",
    "approx_min_k": "nnc.numpy.sort(x)[..., :k], nnc.numpy.argsort(x)[..., :k]",
    "reduce_sum": "nnc.numpy.sum(x, axis)",
    "reduce_prod": "nnc.numpy.prod(x, axis)",
    "reduce_max": "nnc.numpy.max(x, axis)",
    "reduce_min": "nnc.numpy.min(x, axis)",
    "reduce_and": "nnc.numpy.all(x, axis)",
    "reduce_or": "nnc.numpy.any(x, axis)",
    "reduce": (
        "nnc.associative_scan(f, x)",
        "whose last row is the reduction; sums, products and extrema have functions",
    ),
    "reduce_window": ("nnc.nn.max_pool(x, 2)", "or `nnc.nn.avg_pool`"),
    "cumlogsumexp": "nnc.associative_scan(nnc.numpy.logaddexp, x)",
    "batch_matmul": "nnc.numpy.matmul(x, y)",
    "dot_general": "nnc.numpy.einsum('bij,bjk->bik', x, y)",
    "conv": "nnc.nn.conv(x, w)",
    "conv_general_dilated": "nnc.nn.conv(x, w, stride=2, padding='SAME', dilation=1, groups=1)",
    "conv_with_general_padding": "nnc.nn.conv(x, w, padding=((1, 1), (1, 1)))",
    "conv_transpose": ("nnc.nn.conv_transpose(x, w[..., ::-1, ::-1])", "JAX turns the kernel only if it is told to"),
    "custom_linear_solve": "nnc.numpy.linalg.solve(a, b)",
    "custom_root": "nnc.custom_vjp(f)",
    "fft": "nnc.numpy.fft.fftn(x)",
    "linalg": "nnc.numpy.linalg",
    "optimization_barrier": "x",
    "bessel_i0e": "nnc.scipy.special.i0e(x)",
    "bessel_i1e": "nnc.scipy.special.i1e(x)",
    "igamma": "nnc.scipy.special.gammainc(a, x)",
    "igammac": "nnc.scipy.special.gammaincc(a, x)",
    **dict.fromkeys(
        ("Precision", "PrecisionLike", "DotAlgorithmPreset"),
        ("nnc.compile(f, precision='float32')", "or the faster 'tf32', on graphics processors"),
    ),
    "platform_dependent": ("nnc.compile(f, device='cpu')", "a function is compiled for one device"),
    "pswapaxes": "nnc.all_to_all(x, axis_name, 0, 0)",
    "mulhi": "((x.astype('int64') * y) >> 32).astype('int32')",
    "broadcast_like": "nnc.numpy.broadcast_to(x, y.shape)",
    "reduce_precision": "x.astype('bfloat16').astype(x.dtype)",
    "rng_uniform": "nnc.random.uniform(key, shape)",
    "rng_bit_generator": "nnc.random.bits(key, shape)",
}

JAX_RANDOM: Rows = {
    "PRNGKey": "nnc.random.key(seed)",
    "key_data": ("key", "keys are arrays of two integers"),
    "wrap_key_data": ("key", "keys are arrays of two integers"),
    "clone": "key",
    "key_impl": ("nnc.random.key(seed)", "keys are those of threefry2x32"),
    "shuffle": "nnc.random.permutation(key, x)",
    "random_bits": "nnc.random.bits(key, shape)",
    "double_sided_maxwell": "nnc.random.maxwell(key, shape) * nnc.random.rademacher(key, shape)",
    "seed": "nnc.random.key(seed)",
    "default_rng": "nnc.random.key(seed)",
    "rand": "nnc.random.uniform(key, shape)",
    "randn": "nnc.random.normal(key, shape)",
    "standard_normal": "nnc.random.normal(key, shape)",
    "random": "nnc.random.uniform(key, shape)",
    "integers": "nnc.random.randint(key, shape, low, high)",
}

_TREE = words(
    "flatten flatten_with_path leaves leaves_with_path map map_with_path reduce structure transpose unflatten"
)

JAX_TREE_UTIL: Rows = {
    **{f"tree_{name}": f"nnc.tree.{name}" for name in _TREE},
    "tree_all": "all(nnc.tree.leaves(tree))",
    "all": "all(nnc.tree.leaves(tree))",
    "tree_broadcast": "nnc.tree.broadcast_prefix(prefix, tree)",
    "broadcast": "nnc.tree.broadcast_prefix(prefix, tree)",
    "register_pytree_node": "nnc.tree.register(cls, flatten, unflatten)",
    "register_pytree_with_keys": "nnc.tree.register(cls, flatten, unflatten)",
    "register_pytree_node_class": (
        "nnc.tree.register_dataclass(cls)",
        "dataclasses are pytrees without being registered",
    ),
    "register_pytree_with_keys_class": (
        "nnc.tree.register_dataclass(cls)",
        "dataclasses are pytrees without being registered",
    ),
    "static": "nnc.nn.field(static=True)",
    "tree_reduce_associative": "nnc.tree.reduce(f, tree)",
    **dict.fromkeys(
        ("DictKey", "GetAttrKey", "SequenceKey", "FlattenedIndexKey", "KeyPath", "KeyEntry"),
        ("nnc.tree.leaves_with_path(tree)", "paths are strings"),
    ),
    "PyTreeDef": "nnc.tree.structure(tree)",
    "is_tree_node": "not nnc.tree.all_leaves([tree])",
    "register_static": "nnc.nn.field(static=True)",
    "keystr": ("nnc.tree.leaves_with_path(tree)", "paths are strings"),
    "Partial": "functools.partial",
    "tree_multimap": "nnc.tree.map(f, tree, other)",
    "ravel_pytree": "nnc.tree.ravel(tree)",
    "treedef_is_leaf": "nnc.tree.all_leaves([tree])",
    "reduce_associative": "nnc.tree.reduce(f, tree)",
}

JAX_NN: Rows = {
    "swish": "nnc.nn.silu(x)",
    "hard_swish": "nnc.nn.hard_silu(x)",
    "identity": "x",
    "log1mexp": (
        "nnc.numpy.where(x < 0.7, nnc.numpy.log(-nnc.numpy.expm1(-x)), nnc.numpy.log1p(-nnc.numpy.exp(-x)))",
        "neither form alone is exact for small and large x",
    ),
    "logmeanexp": "nnc.numpy.logsumexp(x) - nnc.numpy.log(x.size)",
    "squareplus": "(x + nnc.numpy.sqrt(x * x + b)) / 2",
    "sparse_sigmoid": "nnc.numpy.clip((x + 1) / 2, 0, 1)",
    "scaled_dot_product_attention": "nnc.nn.dot_product_attention(q, k, v)",
}

_SPECIAL = words(  # which nnc.scipy.special has under their names
    "bernoulli bessel_jn beta betainc betaln boxcox boxcox1p comb dawsn digamma entr erf erfc erfcx erfinv exp1 expi "
    "expit expn factorial fresnel gamma gammainc gammaincc gammaln gammasgn hyp1f1 hyp2f1 i0 i0e i1 i1e kl_div "
    "log_ndtr log_softmax loggamma logit logsumexp multigammaln ndtr ndtri owens_t poch polygamma rel_entr sici "
    "softmax spence sph_harm_y xlog1py xlogy zeta"
)

JAX_SCIPY_SPECIAL: Rows = {
    **{name: f"nnc.scipy.special.{name}" for name in _SPECIAL},
    "wofz": ("nnc.scipy.special.wofz(x)", "of complex numbers; its real part is Voigt's profile"),
}

_LINALG = words(  # which nnc.scipy.linalg has under their names
    "block_diag cho_factor cho_solve cholesky circulant companion convolution_matrix det dft eigh eigh_tridiagonal "
    "expm expm_frechet fiedler fiedler_companion hadamard hankel helmert hessenberg hilbert inv invhilbert invpascal "
    "leslie lu lu_factor lu_solve pascal polar qr qr_multiply rsf2csf schur solve solve_sylvester solve_triangular "
    "sqrtm svd toeplitz"
)

JAX_SCIPY_LINALG: Rows = {
    **{name: f"nnc.scipy.linalg.{name}" for name in _LINALG},
    "funm": ("nnc.scipy.linalg.funm(x, f)", "complex, without an estimate of the error"),
}

_SCIPY_PARTS = words("fft integrate interpolate linalg ndimage optimize signal special stats")

JAX_SCIPY: Rows = {
    **{name: f"nnc.scipy.{name}" for name in _SCIPY_PARTS},
    "sparse.linalg": ("nnc.scipy.sparse.linalg", "`cg`, `bicgstab` and `gmres`, with implicit derivatives"),
    "stats.mode": "nnc.scipy.stats.mode(x)",
    "stats.gaussian_kde": "nnc.scipy.stats.gaussian_kde(x)",
    "optimize.minimize": ("nnc.scipy.optimize.minimize(f, x)", "by BFGS or L-BFGS"),
    "ndimage.map_coordinates": (
        "nnc.scipy.ndimage.map_coordinates(x, y, 1)",
        "modes are SciPy's: JAX's 'constant' is 'grid-constant', its 'wrap' is 'grid-wrap'",
    ),
    "interpolate.RegularGridInterpolator": "nnc.scipy.interpolate.RegularGridInterpolator((x, y), z)",
    "cluster.vq.vq": "nnc.scipy.cluster.vq.vq(x, y)",
    "spatial.transform.Rotation": "nnc.scipy.spatial.transform.Rotation.from_rotvec(x)",
    "spatial.transform.Slerp": (
        "nnc.scipy.spatial.transform.Slerp(x, rotations)",
        "for `Slerp.init(times, rotations)`",
    ),
}
