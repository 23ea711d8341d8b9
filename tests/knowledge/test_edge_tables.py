from __future__ import annotations

import gzip
import json

import pytest

from pertbase.errors import InputError, PertbaseError
from pertbase.knowledge import (
    SignedGraph,
    fetch_indra_subnetwork,
    graph_names,
    read_edge_table,
    read_indra,
    signed_graph,
)


@pytest.fixture
def write(tmp_path):
    def write(text, name="edges.tsv"):
        path = tmp_path / name
        path.write_bytes(text.encode())
        return path

    return write


def signs(graph):
    return {(a, b): int(sign) for a, b, sign in graph.edges[["source", "target", "sign"]].itertuples(index=False)}


# -- known tables -------------------------------------------------------------------------------------------


def test_the_tutorials_omnipath_is_read(write):
    graph = read_edge_table(write("source\tinteraction\ttarget\nA\t1\tB\nB\t-1\tC\n"), name="omnipath")
    assert signs(graph) == {("A", "B"): 1, ("B", "C"): -1}
    assert set(graph.edges["sources"]) == {"omnipath"}


def test_the_web_services_omnipath_is_read_by_consensus_then_by_what_any_source_says(write):
    header = (
        "source\ttarget\tsource_genesymbol\ttarget_genesymbol\tis_directed\tis_stimulation\tis_inhibition\t"
        "consensus_direction\tconsensus_stimulation\tconsensus_inhibition\tsources\treferences\tcuration_effort"
    )
    rows = [
        "P1\tP2\tA\tB\t1\t1\t1\t1\t1\t0\tSIGNOR;KEGG\tSIGNOR:11;KEGG:12\t7",
        "P1\tP3\tA\tC\t1\t0\t1\t1\t0\t0\tSIGNOR\t\t0",
        "P1\tP4\tA\tD\t1\t1\t1\t1\t0\t0\tSIGNOR\tSIGNOR:1\t1",
        "P1\tP5\tA\tE\t0\t0\t0\t0\t0\t0\tIntAct\tIntAct:1\t1",
        "COMPLEX:P6_P7\tP2\tF1_G1\tB\tTrue\tFalse\tTrue\tTrue\tFalse\tTrue\tSIGNOR\tSIGNOR:1\t2",
    ]
    graph = read_edge_table(write("\n".join([header, *rows]) + "\n"))
    assert signs(graph) == {
        ("A", "B"): 1,
        ("A", "C"): -1,
        ("A", "D"): 0,
        ("F1", "B"): -1,
        ("G1", "B"): -1,
    }
    assert graph.meta["counts"]["undirected"] == 1
    edges = graph.edges.set_index(["source", "target"])
    assert edges.index[edges["conflict"]].tolist() == [("A", "D")]
    assert edges.loc[("A", "B"), "evidence"] == 7
    assert edges.loc[("A", "B"), "sources"] == "KEGG;SIGNOR"
    assert edges.loc[("A", "C"), "evidence"] == 1


def test_signs_that_collectri_set_by_default_are_unknown(write):
    text = (
        "source,target,weight,resources,references,sign.decision\n"
        "MYC,TERT,1,ExTRI;SIGNOR,1;2;2,PMID\n"
        "MYC,CDKN1A,1,ExTRI,3,default activation\n"
        "SPI1,BGLAP,-1,TRRUST,4,TF role\n"
    )
    graph = read_edge_table(write(text, "collectri.csv"))
    assert signs(graph) == {("MYC", "TERT"): 1, ("MYC", "CDKN1A"): 0, ("SPI1", "BGLAP"): -1}
    assert graph.edges.set_index("target").loc["TERT", ["evidence", "sources"]].tolist() == [2, "ExTRI;SIGNOR"]


def test_one_reference_is_one_piece_of_evidence_whatever_its_number(write):
    graph = read_edge_table(write("source,target,weight,PMID\nA,B,1,10022128\nA,C,1,1;2;3\n", "c.csv"))
    assert graph.edges["evidence"].tolist() == [1, 3]


def test_dorothea_is_read(write):
    graph = read_edge_table(write("tf,confidence,target,mor\nAHR,C,FOS,1.0\nAHR,A,JUN,-1\n", "d.csv"))
    assert signs(graph) == {("AHR", "FOS"): 1, ("AHR", "JUN"): -1}


def test_any_table_is_read_by_the_columns_that_are_named(write):
    path = write("from\twhat\tto\tn\nA\tPositively regulates\tB\t3\nB\tbinds\tC\t1\nC\tquenches\tA\t2\n")
    columns = {"source": "from", "target": "to", "sign": "what", "evidence": "n"}
    with pytest.raises(InputError, match="not a sign that is known") as caught:
        read_edge_table(path, columns=columns)
    assert caught.value.value == "quenches"
    graph = read_edge_table(path, columns=columns, signs={"quenches": -1})
    assert signs(graph) == {("A", "B"): 1, ("B", "C"): 0, ("C", "A"): -1}


def test_a_table_that_is_not_known_says_how_to_name_its_columns(write):
    with pytest.raises(InputError, match=r"columns: \{source: NAME") as caught:
        read_edge_table(write("from\tto\nA\tB\n"))
    assert caught.value.value == ["from", "to"]
    with pytest.raises(InputError, match="lack columns"):
        read_edge_table(write("from\tto\nA\tB\n"), columns={"source": "from", "target": "into"})
    with pytest.raises(InputError, match="Did you mean 'sign'"):
        read_edge_table(write("from\tto\nA\tB\n"), columns={"source": "from", "target": "to", "sing": "x"})


def test_without_a_sign_column_signs_are_unknown(write):
    graph = read_edge_table(write("from\tto\nA\tB\n"), columns={"source": "from", "target": "to"})
    assert signs(graph) == {("A", "B"): 0}


# -- names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["A1:B1", "A1_B1", "COMPLEX:A1_B1", "_A1_B1", "A1:B1:A1"])
def test_complexes_expand_to_their_members(write, name):
    graph = read_edge_table(write(f"source\ttarget\tsign\n{name}\tC\t1\nC\t{name}\t-1\n"))
    assert signs(graph) == {("A1", "C"): 1, ("B1", "C"): 1, ("C", "A1"): -1, ("C", "B1"): -1}
    assert graph.meta["counts"]["complexes"] == 2


def test_what_only_looks_like_a_complex_is_one_gene(write):
    graph = read_edge_table(write("source\ttarget\tsign\nC4B_2\tNKX2-5\t1\nHLA-A\tIFN-γ\t1\n_C2_C4B_2\tHLA-A\t1\n"))
    assert set(graph.nodes) == {"C4B_2", "NKX2-5", "HLA-A", "IFN-γ", "C2"}


def test_families_expand_where_they_are_named(write):
    path = write("source\ttarget\tsign\nAP1\tX\t1\n")
    assert signs(read_edge_table(path)) == {("AP1", "X"): 1}
    graph = read_edge_table(path, families={"AP1": ["FOS", "JUN"]})
    assert signs(graph) == {("FOS", "X"): 1, ("JUN", "X"): 1}


def test_drugs_mouse_genes_and_other_scripts_are_nodes_like_any_other(write):
    graph = read_edge_table(write("source\ttarget\tsign\ntrametinib\tMap2k1\t-1\nβ-estradiol (E2)\tEsr1\t1\n"))
    assert set(graph.nodes) == {"trametinib", "Map2k1", "β-estradiol (E2)", "Esr1"}
    assert graph.nodes[graph.locate(["MAP2K1", "TRAMETINIB"])].tolist() == ["Map2k1", "trametinib"]


# -- files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_line_ends_byte_order_marks_and_compression_make_no_difference(write, tmp_path, ending):
    text = "\ufeffsource\ttarget\tsign\n" + "A\tB\t1\nB\tC\t-1\n"
    plain = read_edge_table(write(text.replace("\n", ending)))
    packed = tmp_path / "edges.tsv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert signs(plain) == signs(read_edge_table(packed)) == {("A", "B"): 1, ("B", "C"): -1}
    assert plain.name == read_edge_table(packed).name == "edges"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("source\ttarget\tsign\n", "no edges"),
        ("source\ttarget\tsign\nA\t\t1\n", "no name at one end"),
        ("source\ttarget\tsign\nA\tA\t1\n", "no edges"),
    ],
)
def test_tables_without_an_edge_are_refused(write, text, message):
    with pytest.raises(InputError, match=message):
        read_edge_table(write(text))


@pytest.mark.parametrize("row", ["A\tB\n", "A\tB\t\n", "A\tB\tnan\n", "A\tB\tNA\n", "A\tB\t0.0\n"])
def test_a_sign_that_is_not_given_is_unknown(write, row):
    assert signs(read_edge_table(write(f"source\ttarget\tsign\n{row}"))) == {("A", "B"): 0}


def test_files_that_are_absent_or_no_text_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_edge_table(tmp_path / "none.tsv")
    (tmp_path / "bytes.tsv").write_bytes(b"\xff\xfe\x00\x01" * 40)
    with pytest.raises(InputError, match="cannot be read as text"):
        read_edge_table(tmp_path / "bytes.tsv")


# -- INDRA --------------------------------------------------------------------------------------------------


def agent(name):
    return {"name": name, "db_refs": {"HGNC": "1"}}


STATEMENTS = [
    {"type": "Activation", "subj": agent("MAP2K1"), "obj": agent("MAPK1"), "evidence": [{"source_api": "reach"}] * 3},
    {"type": "DecreaseAmount", "subj": agent("TP53"), "obj": agent("MYC"), "evidence": []},
    {"type": "Phosphorylation", "enz": agent("AKT1"), "sub": agent("TSC2"), "evidence_count": 9},
    {"type": "Gap", "gap": agent("NF1"), "ras": agent("KRAS")},
    {"type": "Gef", "gef": agent("SOS1"), "ras": agent("KRAS")},
    {"type": "Complex", "members": [agent("A"), agent("B")]},
    {"type": "Autophosphorylation", "enz": agent("EGFR")},
    {"type": "Inhibition", "subj": None, "obj": agent("MYC")},
]


def test_indra_statements_become_edges_with_their_evidence(write):
    graph = read_indra(write(json.dumps(STATEMENTS), "statements.json"))
    assert signs(graph) == {
        ("MAP2K1", "MAPK1"): 1,
        ("TP53", "MYC"): -1,
        ("AKT1", "TSC2"): 0,
        ("NF1", "KRAS"): -1,
        ("SOS1", "KRAS"): 1,
    }
    edges = graph.edges.set_index("source")
    assert edges["evidence"].to_dict() == {"MAP2K1": 3, "TP53": 1, "AKT1": 9, "NF1": 1, "SOS1": 1}
    assert edges.loc["MAP2K1", "sources"] == "reach"
    assert (graph.meta["counts"]["undirected"], graph.meta["counts"]["one_agent"]) == (1, 2)
    assert signs(signed_graph(write(json.dumps({"statements": STATEMENTS}), "s.json"))) == signs(graph)


@pytest.mark.parametrize("text", ["{", '{"a": 1}', "[1]", '[{"subj": {}}]', '[{"type": "Complex", "members": []}]'])
def test_what_is_no_list_of_statements_is_refused(write, text):
    with pytest.raises(InputError):
        read_indra(write(text, "bad.json"))


@pytest.fixture
def service():
    """A server on this machine that answers as INDRA's does."""
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            relations = [
                {
                    "source_id": "1",
                    "data": {"stmt_type": one["type"], "stmt_json": json.dumps(one), "evidence_count": 4},
                }
                for one in STATEMENTS[:2]
            ]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(relations).encode())

        def log_message(self, *arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()


def test_indras_service_is_asked_for_what_lies_between_genes(service):
    url, seen = service
    graph = fetch_indra_subnetwork([("HGNC", "6840"), ("HGNC", "6871")], url=url)
    assert seen == [{"nodes": [["HGNC", "6840"], ["HGNC", "6871"]]}]
    assert signs(graph) == {("MAP2K1", "MAPK1"): 1, ("TP53", "MYC"): -1}
    assert graph.edges["evidence"].tolist() == [4, 4]


def test_a_service_that_cannot_be_reached_says_so():
    with pytest.raises(PertbaseError, match="gave no answer"):
        fetch_indra_subnetwork([("HGNC", "1")], url="http://127.0.0.1:9/none", timeout=2)


# -- by name ------------------------------------------------------------------------------------------------


def test_graphs_are_named_by_files_lists_and_mappings(write):
    first = write("source\ttarget\tsign\nA\tB\t1\n", "one.tsv")
    second = write("from\tto\nB\tC\n", "two.tsv")
    graph = signed_graph([str(first), {"path": str(second), "columns": {"source": "from", "target": "to"}}])
    assert signs(graph) == {("A", "B"): 1, ("B", "C"): 0}
    assert signed_graph(graph) is graph


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("omnipth_carnival", "Did you mean 'omnipath_carnival'"),
        ("nowhere.tsv", "none of the places"),
        ([], "is no graph"),
        (3, "is no graph"),
        ({"pth": "x"}, "Did you mean 'path'"),
        ({"columns": {}}, "has to be given"),
    ],
)
def test_a_graph_that_cannot_be_had_is_refused(source, message):
    with pytest.raises(InputError, match=message):
        signed_graph(source)


def test_every_named_graph_says_where_it_comes_from_and_on_what_terms():
    from importlib.resources import files

    import yaml

    assert {"collectri", "dorothea", "omnipath", "omnipath_carnival"} <= set(graph_names())
    for name in graph_names():
        about = yaml.safe_load(files("pertbase.conf").joinpath("graph", f"{name}.yaml").read_text())
        assert {"path", "url", "source", "licence", "citation"} <= set(about)


def test_the_real_tables_are_read(real_data, monkeypatch):
    monkeypatch.setenv("PERTBASE_DATA", str(real_data))
    graph = signed_graph(["omnipath_carnival", "collectri"])
    assert isinstance(graph, SignedGraph)
    edges = signs(graph)
    assert edges["IFNGR1", "JAK2"] == edges["JAK2", "STAT1"] == edges["STAT1", "IRF1"] == 1
    assert not [name for name in graph.nodes if name.startswith(("COMPLEX:", "_")) or ":" in name]
    assert {"AP1", "NFKB"}.isdisjoint(graph.nodes)
    assert set(graph.meta["licences"]) == {"omnipath_carnival", "collectri"}
    assert not list((real_data / "knowledge").glob("*.origin.json"))


@pytest.mark.parametrize("text", ["many", "-2", "inf", "nan"])
def test_evidence_that_is_no_number_of_findings_is_refused_and_empty_is_the_edge_itself(write, text):
    columns = {"source": "from", "target": "to", "evidence": "n"}
    with pytest.raises(InputError, match="evidence is a number of findings") as caught:
        read_edge_table(write(f"from\tto\tn\nA\tB\t3\nB\tC\t{text}\n"), columns=columns)
    assert caught.value.value == text
    graph = read_edge_table(write("from\tto\tn\nA\tB\t3\nB\tC\t\n"), columns=columns)
    assert sorted(graph.edges["evidence"]) == [1, 3]
