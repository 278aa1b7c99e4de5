"""The data sets by name: shape, licence, source, and where each is to be had."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

_ARCHIVE = "https://archive.org"
_ITEM = "pecos-dataset"
_RAW = "https://raw.githubusercontent.com"
_MULAN = f"{_RAW}/tsoumakas/mulan/43f6389095ad71984264db4387a8074b22bc7d4a/data/multi-label"
_CLINC = f"{_RAW}/clinc/oos-eval/828f8093932c8fe6ca7936c3d2e52903b1c523de/data"
_REPOSITORY = "the Extreme Classification Repository, http://manikvarma.org/downloads/XC/XMLRepository.html"
_UNSTATED = "not stated by the publisher"


class File(NamedTuple):
    """A file to be fetched.

    Attributes:
        name: its name in the folder of the data set.
        url: where it is published.
        sha256: of its bytes; None where `listing` has its SHA-1.
        listing: address of the publisher's JSON with the SHA-1 of every file ("files", "name", "sha1").
        member: the name of the file in the listing.

    Example:
        >>> from xmcjax.datasets import SETS
        >>> [file.name for file in SETS["bibtex"].files]
        ['bibtex-train.arff', 'bibtex-test.arff']
    """

    name: str
    url: str
    sha256: str | None
    listing: str = ""
    member: str = ""


@dataclasses.dataclass(frozen=True)
class DataSet:
    """What is known of a data set.

    Attributes:
        name: of :func:`xmcjax.datasets.fetch`.
        kind: "labels" where a row has any number of them, "classes" where it has one.
        n_train: rows of the training part.
        n_test: rows of the test part.
        n_features: None where it differs between the files that are in use.
        n_labels: labels, or classes that occur in the training part.
        licence: as the publisher states it.
        source: who published it, and where.
        layout: how its own files are read: "xmc", "svmlight", "npz", "silhouettes", or "package" for the
            set that comes with the package.
        files: the files to fetch; empty where no public address with a checksum is known.
        reader: how the fetched files are read: "mulan", "clinc" or "pecos".
        variants: further (n_labels, n_train, n_test) that files of this name may have.

    Example:
        >>> from xmcjax.datasets import SETS
        >>> SETS["bibtex"].n_train, SETS["bibtex"].n_labels, SETS["naics_demo"].address
        (4880, 159, 'comes with xmcjax')
    """

    name: str
    kind: str
    n_train: int
    n_test: int
    n_features: int | None
    n_labels: int
    licence: str
    source: str
    layout: str
    files: tuple[File, ...] = ()
    reader: str = ""
    variants: tuple[tuple[int, int, int], ...] = ()

    @property
    def address(self) -> str:
        """Where it is fetched from, or what to do instead."""
        if self.layout == "package":
            return "comes with xmcjax"
        return self.files[0].url if self.files else "a local copy only"


def _mulan(name: str, train: str, test: str) -> tuple[File, ...]:
    parts = (("train", train), ("test", test))
    return tuple(
        File(f"{name}-{part}.arff", f"{_MULAN}/{name}/{name}-{part}.arff", digest) for part, digest in parts
    )


def _pecos(name: str, n_labels: int, n_train: int, n_test: int, *variants: tuple[int, int, int]) -> DataSet:
    """A set of the repository in an archive of PECOS, whose SHA-1 the Internet Archive lists."""
    member = f"xmc-base/{name}.tar.gz"
    listing = f"{_ARCHIVE}/metadata/{_ITEM}"
    file = File(f"{name}.tar.gz", f"{_ARCHIVE}/download/{_ITEM}/{member}", None, listing, member)
    return DataSet(
        name,
        "labels",
        n_train,
        n_test,
        None,
        n_labels,
        _UNSTATED,
        _REPOSITORY,
        "xmc",
        (file,),
        "pecos",
        variants,
    )


_OF_MULAN = "not stated; cite {}"
_UCI = "not stated; UCI Machine Learning Repository"

SETS: dict[str, DataSet] = {
    found.name: found
    for found in (
        DataSet(
            "naics_demo",
            "labels",
            *(16108, 3949, 8216, 1055),
            "public domain",
            "U.S. Census Bureau, index of the North American Industry Classification System 2017",
            "package",
        ),
        DataSet(
            "bibtex",
            "labels",
            *(4880, 2515, 1836, 159),
            _OF_MULAN.format("Katakis, Tsoumakas, Vlahavas 2008"),
            "Mulan, https://github.com/tsoumakas/mulan",
            "xmc",
            _mulan(
                "bibtex",
                "8dcc9de6e0b2cebaec8c1f4fac78431adeeb73cfd3ab879b530a66d366e59174",
                "9b03329cde64d3f994bdf7fbbac3f3b10fe185c311cb9ae725475f59c7f3f922",
            ),
            "mulan",
        ),
        DataSet(
            "delicious",
            "labels",
            *(12920, 3185, 500, 983),
            _OF_MULAN.format("Tsoumakas, Katakis, Vlahavas 2008"),
            "Mulan, https://github.com/tsoumakas/mulan",
            "xmc",
            _mulan(
                "delicious",
                "030186cdb542ebdd32052fcdbb1ebe30115b3a22518c1b4b198c45eb827aebe1",
                "2dfb01723a819914b0ca83361177ed413ce3f2169851d9f228d4692915d63944",
            ),
            "mulan",
        ),
        # Sizes as the repository states them; the archives lack a few rows and labels of some sets.
        _pecos("eurlex-4k", 3993, 15539, 3809, (3956, 15449, 3865)),
        _pecos("wiki10-31k", 30938, 14146, 6616),
        _pecos("amazoncat-13k", 13330, 1186239, 306782),
        _pecos("amazon-670k", 670091, 490449, 153025),
        _pecos("amazon-3m", 2812281, 1717899, 742507),
        DataSet(
            "clinc150",
            "classes",
            *(15000, 4500, 4824, 150),
            "CC BY 3.0",
            "Larson et al. 2019, https://github.com/clinc/oos-eval",
            "svmlight",
            (
                File(
                    "data_full.json",
                    f"{_CLINC}/data_full.json",
                    "36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0",
                ),
            ),
            "clinc",
        ),
        DataSet(
            "stackexchange_tags",
            "labels",
            *(31246, 7786, 21053, 1806),
            "CC BY-SA 3.0",
            "posts of the Stack Exchange Network, prepared by the authors of xmcjax",
            "xmc",
        ),
        DataSet(
            "rcv1_subset1",
            "labels",
            *(4820, 1180, 944, 101),
            "for research, as RCV1",
            "https://github.com/KKimura360/MLC_toolbox, split by the authors of xmcjax",
            "xmc",
        ),
        DataSet(
            "yeast_gasch1_go",
            "labels",
            *(2477, 1281, 173, 4125),
            _OF_MULAN.format("Vens et al. 2008"),
            "https://github.com/EGiunchiglia/C-HMCNN",
            "xmc",
        ),
        DataSet(
            "naics2017",
            "classes",
            *(16108, 3949, 8216, 1055),
            "public domain",
            "as naics_demo, with the tree of its classes",
            "svmlight",
        ),
        DataSet(
            "clef",
            "classes",
            *(10000, 1006, 80, 63),
            _UNSTATED,
            "ImageCLEF 2007 annotation data, https://github.com/EGiunchiglia/C-HMCNN",
            "svmlight",
        ),
        DataSet(
            "satimage",
            "classes",
            *(4435, 2000, 36, 6),
            _UCI,
            "Statlog (Landsat Satellite)",
            "svmlight",
        ),
        DataSet("letter", "classes", *(15000, 5000, 16, 26), _UCI, "letter recognition, scaled", "svmlight"),
        DataSet(
            "usps",
            "classes",
            *(7291, 2007, 256, 10),
            _UNSTATED,
            "https://github.com/niuers/Learning-From-Data-A-Short-Course",
            "npz",
        ),
        DataSet(
            "iris", "classes", *(134, 15, 4, 3), _UCI, "scaled, https://github.com/albermax/xcsvm", "svmlight"
        ),
        DataSet("glass", "classes", *(192, 21, 9, 6), _UCI, "https://github.com/albermax/xcsvm", "svmlight"),
        DataSet(
            "splice",
            "classes",
            *(1000, 2175, 60, 2),
            _UCI,
            "standardised, https://github.com/albermax/xcsvm",
            "svmlight",
        ),
        DataSet(
            "news20_bydate",
            "classes",
            *(11314, 7532, 44920, 20),
            _UNSTATED,
            "20 Newsgroups by date, prepared by the authors of xmcjax",
            "svmlight",
        ),
        DataSet(
            "whats_cooking",
            "classes",
            *(31856, 7918, 6295, 20),
            _UNSTATED,
            "Yummly through Kaggle, prepared by the authors of xmcjax",
            "svmlight",
        ),
        DataSet(
            "caltech101_silhouettes",
            "classes",
            *(4100, 2307, 784, 101),
            _UNSTATED,
            "B. Marlin, from Caltech-101; split by the authors of xmcjax",
            "silhouettes",
        ),
    )
}


def names() -> tuple[str, ...]:
    """Names of the data sets.

    Example:
        >>> from xmcjax import datasets
        >>> [name for name in datasets.names() if name.startswith("b")]
        ['bibtex']
    """
    return tuple(SETS)


def table() -> str:
    """A Markdown table of the data sets: shape, licence, source, and where each is fetched from.

    Example:
        >>> from xmcjax import datasets
        >>> print(datasets.table().splitlines()[0])
        | name | a row has | training rows | test rows | features | labels | licence | source | fetched from |
    """
    header = ("name", "a row has", "training rows", "test rows", "features", "labels", "licence", "source")
    lines = [[*header, "fetched from"], ["---"] * (len(header) + 1)]
    for name, found in SETS.items():
        kind = "labels" if found.kind == "labels" else "one class"
        shape = (found.n_train, found.n_test, found.n_features, found.n_labels)
        numbers = ["" if number is None else f"{number:,}" for number in shape]
        host = found.address.split("/")[2] if "://" in found.address else found.address
        lines.append([f"`{name}`", kind, *numbers, found.licence, found.source, host])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
