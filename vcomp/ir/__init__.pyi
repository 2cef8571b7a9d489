import vcomp.studies as _studies

from . import measures as measures
from .accuracies import Measures as Measures
from .accuracies import accuracy as accuracy
from .accuracies import accuracy_of as accuracy_of
from .accuracy_result import Accuracy as Accuracy
from .average_p import AveragePValues as AveragePValues
from .average_p import average_p_values as average_p_values
from .curve import AccuracyCurve as AccuracyCurve
from .curve import Model as Model
from .curve import fit_curve as fit_curve
from .documents.assessors import AssessorLayout as AssessorLayout
from .documents.assessors import AssessorLayouts as AssessorLayouts
from .documents.document_files import document_universe as document_universe
from .documents.document_files import write_per_document as write_per_document
from .documents.document_universe import DocumentUniverse as DocumentUniverse
from .documents.document_universe import score_table as score_table
from .documents.document_universe import set_measures as set_measures
from .documents.layouts import assessor_layouts as assessor_layouts
from .documents.relevance import RelevanceModel as RelevanceModel
from .documents.relevance import fit_relevance as fit_relevance
from .mapping import MappingStudy as MappingStudy
from .mapping import map_dstudy as map_dstudy
from .mapping import map_reliability as map_reliability
from .mapping import normal_tau as normal_tau
from .mapping_fit import fit_mapping as fit_mapping
from .mapping_fit import validate_mapping as validate_mapping
from .rank.correlation_tables import expected_tau as expected_tau
from .reliability_map import PUBLISHED as PUBLISHED
from .reliability_map import ReliabilityMap as ReliabilityMap
from .run_scores import score_runs as score_runs
from .scores import ScoreMatrix as ScoreMatrix
from .scores import as_score_matrix as as_score_matrix
from .significance import swap_rates as swap_rates
from .simulate.collection_fit import fit_collection as fit_collection
from .simulate.effect_draws import Track as Track
from .simulate.effect_draws import novelty_like_track as novelty_like_track
from .simulate.source_comparison import OriginalCollection as OriginalCollection
from .simulate.source_comparison import SimulationComparison as SimulationComparison
from .simulate.source_comparison import compare_simulated as compare_simulated
from .splitting import SplitHalfStudy as SplitHalfStudy
from .splitting import split_half as split_half
from .system_comparison import compare_systems as compare_systems
from .topic_scores import read_scores as read_scores
from .unjudged_documents import Unjudged as Unjudged
from .unjudged_documents import unjudged as unjudged

AssessorStudy = _studies.AssessorStudy
assessor_study = _studies.assessor_study
per_document_study = _studies.per_document_study
