"""Optimizers as pairs of pure functions, `(init, update)`, that chain; with learning-rate schedules and clipping.

A training step makes updates of gradients and adds them to the parameters:

    optimizer = nnc.optim.adam(1e-3)
    state = optimizer.init(params)
    updates, state = optimizer.update(grads, state, params)
    params = nnc.optim.apply_updates(params, updates)

All of it is pure, so the whole step compiles. Names, arguments and formulas are those of Optax; where torch.optim differs, the
docstring says which arguments give its steps. Optimizers combine: `chain` one after the other, `masked` and `multi_transform` for
parts of the parameters, `MultiSteps` over several gradients, `lookahead`, `ema`; `DynamicLossScale` is for 16-bit floats.
"""

from nnc.optim.accumulate import (
    EmaState,
    LookaheadParams,
    LookaheadState,
    MultiSteps,
    MultiStepsState,
    ema,
    incremental_update,
    lookahead,
)
from nnc.optim.adafactor import (
    FactoredState,
    adafactor,
    scale_by_factored_rms,
    scale_by_param_block_rms,
)
from nnc.optim.adagrad import (
    ScaleByAdaDeltaState,
    ScaleByRssState,
    adadelta,
    adagrad,
    scale_by_adadelta,
    scale_by_rss,
)
from nnc.optim.adam_aliases import (
    adamaxw,
    amsgrad,
    nadamw,
)
from nnc.optim.adam_family import (
    ScaleByLionState,
    ScaleByNadamState,
    adamax,
    lion,
    nadam,
    radam,
    scale_by_adamax,
    scale_by_lion,
    scale_by_nadam,
    scale_by_radam,
)
from nnc.optim.adan import (
    ScaleByAdanState,
    adan,
    adopt,
    scale_by_adan,
    scale_by_adopt,
)
from nnc.optim.ademamix import (
    ScaleByAdemamixState,
    ScaleBySimplifiedAdEMAMixState,
    ademamix,
    scale_by_ademamix,
    scale_by_simplified_ademamix,
    simplified_ademamix,
)
from nnc.optim.base import (
    EmptyState,
    GradientTransformation,
    GradientTransformationExtraArgs,
    apply_updates,
    chain,
    identity,
)
from nnc.optim.belief import (
    ScaleByBeliefState,
    acprop,
    adabelief,
    scale_by_acprop,
    scale_by_belief,
    scale_by_yogi,
    yogi,
)
from nnc.optim.by_value import (
    MomoAdamState,
    MomoState,
    momo,
    momo_adam,
    polyak_sgd,
    scale_by_polyak,
)
from nnc.optim.clipping import (
    adaptive_grad_clip,
    clip,
    clip_by_block_rms,
    clip_by_global_norm,
    clip_by_norm,
    global_norm,
)
from nnc.optim.cocob import (
    COCOBState,
    cocob,
    scale_by_cocob,
)
from nnc.optim.cycles import (
    cosine_onecycle_schedule,
    linear_onecycle_schedule,
    piecewise_interpolate_schedule,
    sgdr_schedule,
    warmup_exponential_decay_schedule,
)
from nnc.optim.distance import (
    DoGState,
    DoWGState,
    ScaleByDistanceOverGradientsState,
    dog,
    dowg,
    scale_by_distance_over_gradients,
    scale_by_dog,
    scale_by_dowg,
)
from nnc.optim.fromage import (
    fromage,
)
from nnc.optim.hyperparams import (
    InjectHyperparamsState,
    inject_hyperparams,
)
from nnc.optim.lbfgs import (
    ScaleByLBFGSState,
    lbfgs,
    scale_by_lbfgs,
)
from nnc.optim.linesearch import (
    ScaleByZoomLinesearchState,
    ZoomLinesearchInfo,
    scale_by_zoom_linesearch,
    value_and_grad_from_state,
)
from nnc.optim.madgrad import (
    MadgradState,
    madgrad,
    scale_by_madgrad,
)
from nnc.optim.moments import (
    ScaleByAdamState,
    ScaleByAmsgradState,
    ScaleByRmsState,
    ScaleByStddevState,
    scale_by_adam,
    scale_by_amsgrad,
    scale_by_rms,
    scale_by_stddev,
)
from nnc.optim.muon import (
    MuonState,
    muon,
    orthogonalize_via_newton_schulz,
    scale_by_muon,
    scale_by_shape,
)
from nnc.optim.names import __getattr__ as __getattr__
from nnc.optim.novograd import (
    ScaleByNovogradState,
    novograd,
    scale_by_novograd,
)
from nnc.optim.optimistic import (
    ScaleByOptimisticGradientState,
    optimistic_adam,
    optimistic_adam_v2,
    optimistic_gradient_descent,
    scale_by_optimistic_gradient,
)
from nnc.optim.optimizers import (
    adam,
    adamw,
    lamb,
    lars,
    rmsprop,
    sgd,
)
from nnc.optim.partition import (
    MaskedNode,
    MaskedState,
    PartitionState,
    SplitRealAndImaginaryArrays,
    SplitRealAndImaginaryState,
    freeze,
    masked,
    multi_transform,
    set_to_zero,
    split_real_and_imaginary,
)
from nnc.optim.plateau import (
    ReduceLROnPlateauState,
    reduce_on_plateau,
)
from nnc.optim.precision import (
    ApplyIfFiniteState,
    DynamicLossScale,
    StaticLossScale,
    all_finite,
    apply_if_finite,
    select_tree,
)
from nnc.optim.prodigy import (
    DAdaptAdamWState,
    ProdigyState,
    dadapt_adamw,
    prodigy,
)
from nnc.optim.sam import (
    SAMState,
    normalize,
    sam,
)
from nnc.optim.schedule_free import (
    ScheduleFreeState,
    schedule_free,
    schedule_free_adamw,
    schedule_free_eval_params,
    schedule_free_sgd,
)
from nnc.optim.schedules import (
    constant_schedule,
    cosine_decay_schedule,
    exponential_decay,
    join_schedules,
    linear_schedule,
    piecewise_constant_schedule,
    polynomial_schedule,
    warmup_constant_schedule,
    warmup_cosine_decay_schedule,
)
from nnc.optim.signs import (
    ScaleByRpropState,
    rprop,
    scale_by_rprop,
    scale_by_sign,
    sign_sgd,
    signum,
)
from nnc.optim.sm3 import (
    ScaleBySM3State,
    scale_by_sm3,
    sm3,
)
from nnc.optim.transforms import (
    ScaleByScheduleState,
    TraceState,
    WeightDecaySchedule,
    add_decayed_weights,
    scale,
    scale_by_learning_rate,
    scale_by_schedule,
    scale_by_trust_ratio,
    trace,
)

__all__ = [
    "ApplyIfFiniteState",
    "COCOBState",
    "DAdaptAdamWState",
    "DoGState",
    "DoWGState",
    "DynamicLossScale",
    "EmaState",
    "EmptyState",
    "FactoredState",
    "GradientTransformation",
    "GradientTransformationExtraArgs",
    "InjectHyperparamsState",
    "LookaheadParams",
    "LookaheadState",
    "MadgradState",
    "MaskedNode",
    "MaskedState",
    "MomoAdamState",
    "MomoState",
    "MultiSteps",
    "MultiStepsState",
    "MuonState",
    "PartitionState",
    "ProdigyState",
    "ReduceLROnPlateauState",
    "SAMState",
    "ScaleByAdaDeltaState",
    "ScaleByAdamState",
    "ScaleByAdanState",
    "ScaleByAdemamixState",
    "ScaleByAmsgradState",
    "ScaleByBeliefState",
    "ScaleByDistanceOverGradientsState",
    "ScaleByLBFGSState",
    "ScaleByLionState",
    "ScaleByNadamState",
    "ScaleByNovogradState",
    "ScaleByOptimisticGradientState",
    "ScaleByRmsState",
    "ScaleByRpropState",
    "ScaleByRssState",
    "ScaleBySM3State",
    "ScaleByScheduleState",
    "ScaleBySimplifiedAdEMAMixState",
    "ScaleByStddevState",
    "ScaleByZoomLinesearchState",
    "ScheduleFreeState",
    "SplitRealAndImaginaryArrays",
    "SplitRealAndImaginaryState",
    "StaticLossScale",
    "TraceState",
    "WeightDecaySchedule",
    "ZoomLinesearchInfo",
    "acprop",
    "adabelief",
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamaxw",
    "adamw",
    "adan",
    "adaptive_grad_clip",
    "add_decayed_weights",
    "ademamix",
    "adopt",
    "all_finite",
    "amsgrad",
    "apply_if_finite",
    "apply_updates",
    "chain",
    "clip",
    "clip_by_block_rms",
    "clip_by_global_norm",
    "clip_by_norm",
    "cocob",
    "constant_schedule",
    "cosine_decay_schedule",
    "cosine_onecycle_schedule",
    "dadapt_adamw",
    "dog",
    "dowg",
    "ema",
    "exponential_decay",
    "freeze",
    "fromage",
    "global_norm",
    "identity",
    "incremental_update",
    "inject_hyperparams",
    "join_schedules",
    "lamb",
    "lars",
    "lbfgs",
    "linear_onecycle_schedule",
    "linear_schedule",
    "lion",
    "lookahead",
    "madgrad",
    "masked",
    "momo",
    "momo_adam",
    "multi_transform",
    "muon",
    "nadam",
    "nadamw",
    "normalize",
    "novograd",
    "optimistic_adam",
    "optimistic_adam_v2",
    "optimistic_gradient_descent",
    "orthogonalize_via_newton_schulz",
    "piecewise_constant_schedule",
    "piecewise_interpolate_schedule",
    "polyak_sgd",
    "polynomial_schedule",
    "prodigy",
    "radam",
    "reduce_on_plateau",
    "rmsprop",
    "rprop",
    "sam",
    "scale",
    "scale_by_acprop",
    "scale_by_adadelta",
    "scale_by_adam",
    "scale_by_adamax",
    "scale_by_adan",
    "scale_by_ademamix",
    "scale_by_adopt",
    "scale_by_amsgrad",
    "scale_by_belief",
    "scale_by_cocob",
    "scale_by_distance_over_gradients",
    "scale_by_dog",
    "scale_by_dowg",
    "scale_by_factored_rms",
    "scale_by_lbfgs",
    "scale_by_learning_rate",
    "scale_by_lion",
    "scale_by_madgrad",
    "scale_by_muon",
    "scale_by_nadam",
    "scale_by_novograd",
    "scale_by_optimistic_gradient",
    "scale_by_param_block_rms",
    "scale_by_polyak",
    "scale_by_radam",
    "scale_by_rms",
    "scale_by_rprop",
    "scale_by_rss",
    "scale_by_schedule",
    "scale_by_shape",
    "scale_by_sign",
    "scale_by_simplified_ademamix",
    "scale_by_sm3",
    "scale_by_stddev",
    "scale_by_trust_ratio",
    "scale_by_yogi",
    "scale_by_zoom_linesearch",
    "schedule_free",
    "schedule_free_adamw",
    "schedule_free_eval_params",
    "schedule_free_sgd",
    "select_tree",
    "set_to_zero",
    "sgd",
    "sgdr_schedule",
    "sign_sgd",
    "signum",
    "simplified_ademamix",
    "sm3",
    "split_real_and_imaginary",
    "trace",
    "value_and_grad_from_state",
    "warmup_constant_schedule",
    "warmup_cosine_decay_schedule",
    "warmup_exponential_decay_schedule",
    "yogi",
]


def __dir__() -> list[str]:
    return sorted(__all__)
