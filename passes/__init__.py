"""Graph in, graph out; and the memory plan at the end."""
from .check_plan import PlanError as PlanError
from .check_plan import check_plan as check_plan
from .early import update_early as update_early
from .keep import Kept as Kept
from .keep import choose_kept as choose_kept
from .lower import LowerError as LowerError
from .lower import lower as lower
from .memory import plan as plan
from .pipeline import NESTS_ONLY as NESTS_ONLY
from .pipeline import OPENING as OPENING
from .pipeline import PIPELINE as PIPELINE
from .pipeline import Pass as Pass
from .pipeline import run_pipeline as run_pipeline
from .recompute import Recomputed as Recomputed
from .recompute import choose_recomputed as choose_recomputed
from .recompute import keeping as keeping
from .recompute import spare as spare
