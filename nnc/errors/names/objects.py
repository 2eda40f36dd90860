"""Methods of other libraries' modules and optimizers, which are values and pairs of functions in nnc."""

from __future__ import annotations

from nnc.errors.names.rows import Row, Rows

_PARAMETERS: Row = ("nnc.nn.parameters(model)", "a dict by paths; `nnc.grad` and optimizers take the model itself")
_HOOK: Row = ("nnc.debug.callback(f, x)", "within `__call__`; or a module around the layer")
_PARTS: Row = ("print(model)", "its parts are fields: `vars(model)`, and paths in `nnc.nn.parameters(model)`")
_FIELD: Row = ("nnc.nn.Module", "with a field that is declared in the class body: `name: nnc.Array`")

TORCH_MODULE: Rows = {
    "parameters": _PARAMETERS,
    "named_parameters": _PARAMETERS,
    "get_parameter": "nnc.nn.parameters(model)['head.weight']",
    "state_dict": ("nnc.io.save(path, model)", "`nnc.nn.parameters(model)` is a dict of its arrays"),
    "load_state_dict": (
        "nnc.nn.load_torch(model, state)",
        "takes PyTorch's names; for a file of nnc `nnc.io.load(path, like=model)`",
    ),
    "train": ("nnc.nn.inference_mode(model, False)", "returns the changed model"),
    "eval": ("nnc.nn.inference_mode(model)", "returns the changed model"),
    "training": ("nnc.nn.inference_mode(model)", "sets the field `inference` of dropout and norms"),
    "to": ("nnc.device_put(model, 'cuda:0')", "to a dtype: `nnc.nn.cast(model, 'bfloat16')`"),
    "cuda": "nnc.device_put(model, 'cuda:0')",
    "cpu": "nnc.device_put(model, 'cpu')",
    **{name: f"nnc.nn.cast(model, '{name}')" for name in ("float16", "bfloat16")},
    "half": "nnc.nn.cast(model, 'float16')",
    "float": "nnc.nn.cast(model, 'float32')",
    "double": "nnc.nn.cast(model, 'float64')",
    "type": "nnc.nn.cast(model, dtype)",
    "zero_grad": ("nnc.grad(f)", "gradients are results of functions, so there is nothing to set to zero"),
    "requires_grad_": (
        "nnc.nn.trainable(model, freeze='*')",
        "is a mask for `nnc.nn.partition` and `nnc.optim.masked`",
    ),
    "forward": ("model(x)", "its method is named `__call__`"),
    "apply": ("nnc.tree.map(f, model)", "changes its arrays; `model.apply(params, x)` of Flax is `model(x)`"),
    "modules": _PARTS,
    "named_modules": _PARTS,
    "children": _PARTS,
    "named_children": _PARTS,
    "get_submodule": _PARTS,
    "buffers": ("nnc.nn.partition(model)[1]", "state is held by fields that `nnc.nn.field(state=True)` marks"),
    "named_buffers": ("nnc.nn.partition(model)[1]", "state is held by fields that `nnc.nn.field(state=True)` marks"),
    "register_buffer": "nnc.nn.field(state=True)",
    "register_parameter": _FIELD,
    "register_module": _FIELD,
    "add_module": _FIELD,
    "register_forward_hook": _HOOK,
    "register_forward_pre_hook": _HOOK,
    "register_full_backward_hook": ("nnc.custom_vjp(f)", "has a backward rule of your own"),
    "compile": "nnc.compile(model)",
    "share_memory": ("model", "arrays are immutable, and other threads may read them"),
    "grad": ("nnc.grad(f)", "returns a model of gradients"),
}

FLAX_MODULE: Rows = {
    "init": ("nnc.nn.Linear(3, 8, key=key)", "layers have their arrays as soon as they are made"),
    "init_with_output": ("nnc.nn.Linear(3, 8, key=key)", "layers have their arrays as soon as they are made"),
    "bind": ("model", "a module holds its arrays"),
    "unbind": "nnc.nn.partition(model)",
    "param": _FIELD,
    "variable": "nnc.nn.field(state=True)",
    "variables": _PARAMETERS,
    "make_rng": ("nnc.random.split(key)", "a method takes keys as arguments"),
    "sow": ("nnc.debug.callback(f, x)", "or return the value beside the output"),
    "tabulate": "nnc.nn.summary(model, x)",
}

TORCH_OPTIMIZER: Rows = {
    "step": ("optimizer.update(grads, state, params)", "then `nnc.optim.apply_updates(params, updates)`"),
    "zero_grad": ("nnc.grad(f)", "gradients are results of functions, so there is nothing to set to zero"),
    "state": ("optimizer.init(params)", "the state is a value that `update` takes and returns"),
    "state_dict": ("nnc.io.save(path, state)", "the state is a pytree that `init` and `update` return"),
    "load_state_dict": ("nnc.io.load(path, like=state)", "the state is a pytree that `init` and `update` return"),
    "param_groups": (
        "nnc.optim.multi_transform(optimizers, labels)",
        "learning rates that change: a schedule, or `nnc.optim.inject_hyperparams`",
    ),
    "add_param_group": "nnc.optim.multi_transform(optimizers, labels)",
    "apply_gradients": ("optimizer.update(grads, state, params)", "then `nnc.optim.apply_updates(params, updates)`"),
    "minimize": ("optimizer.update(grads, state, params)", "then `nnc.optim.apply_updates(params, updates)`"),
}
