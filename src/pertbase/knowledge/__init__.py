"""What is known of genes beside a screen: gene sets."""

from pertbase.knowledge._gene_sets import (
    GeneSets,
    default_gene_sets,
    gene_sets,
    membership,
    read_gene2go,
    read_gmt,
)

__all__ = ["GeneSets", "default_gene_sets", "gene_sets", "membership", "read_gene2go", "read_gmt"]
