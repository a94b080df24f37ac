"""codes: every code of an error or a warning, each once, with its one meaning.

A code never changes its meaning: a removed code leaves a gap, a new one takes a new number. Errors
begin with E, warnings with W. E0xx: the text of a program or a cluster file; E1xx: its evaluation,
and a cluster's parts; E2xx: correctness of a program; E3xx: plans, and proofs over them; E4xx:
files, options, tools and launches; E5xx: files and runtimes of others. docs/errors.md is this
table as a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Code:
    """One code. name: `E101`; meaning: one sentence; remedy: the general advice, empty where each
    message gives its own."""

    name: str
    meaning: str
    remedy: str = ""


_GROUPS = {  # the first that a code begins with
    "E0": "The text of a program or a cluster file",
    "E13": "Clusters",
    "E1": "Evaluating a program",
    "E2": "Correctness of a program",
    "W2": "Warnings about a program",
    "E30": "Proofs over a plan",
    "E3": "Plans",
    "E4": "Files, options, tools and launches",
    "W4": "Warnings about a call on a cluster",
    "E5": "Files and runtimes of others",
}

TABLE = (
    Code("E001", "The text breaks the grammar of the transfer language."),
    Code("E002", "A line that opens a block does not end with `:`."),
    Code("E003", "A character, a number or a string is not one of the transfer language."),
    Code("E004", "A line's indentation fits no block.", "Indent it like the line it belongs with."),
    Code("E005", "Tabs and spaces are mixed in indentation.", "Indent with spaces only."),
    Code("E006", "Blocks, parentheses, expressions or lists nest too deep."),
    Code("E007", "A program's text is too long.", "Write repetition as loops."),
    Code("E008", "Something of Python is used that the transfer language does not have."),
    Code("E009", "A `,` is missing between two values."),
    Code("E010", "The header is missing, or has a key that is unknown or given twice."),
    Code("E011", "The header lacks a key that it must have."),
    Code("E012", "A header key has a value that it cannot have."),
    Code(
        "E013",
        "A call has the wrong number of values, stands in the wrong place, or is of no "
        "function that there is.",
    ),
    Code(
        "E014",
        "A value is of the wrong kind: a string for a number, or `recv` or `rrc` where "
        "they cannot stand.",
    ),
    Code(
        "E015",
        "A function of the program's own is not one: a name is defined twice, it calls "
        "itself, returns nothing, or does more than compute a value.",
        "A function is assignments, and a `return` at its end.",
    ),
    Code("E016", "An assignment has more or fewer values than variables."),
    Code(
        "E017",
        "A demand is not one: a line of it breaks its grammar, or names a rank that there is not.",
        "A line says who has a block and who wants it: `0 -> 1-3`.",
    ),
    Code("E018", "The text breaks the grammar of sketches."),
    Code(
        "E019",
        "A sketch does not fit its cluster, or does not reach every rank once; or the shares of "
        "several do not add up to 1.",
        "`hccc cluster dimensions` prints the dimensions and groups of a cluster.",
    ),
    Code("E030", "The text breaks the grammar of the cluster language."),
    Code("E031", "A character, a number or a string is not one of the cluster language."),
    Code("E032", "A bracket is never closed, closes nothing, or closes another kind."),
    Code("E033", "`define` names something that clusters do not have."),
    Code("E034", "A cluster has no node, or defines something that needs nodes it does not have."),
    Code("E035", "A value has another shape than what stands there must have."),
    Code("E036", "A number has too many digits, or a name has letters that it cannot have."),
    Code("E037", "A cluster file is too long or nests too deep.", "Describe many links as one."),
    Code("E101", "A variable has no value where it is used."),
    Code("E102", "`/` leaves a remainder.", "Use `//` to round down."),
    Code("E103", "A number does not fit in 64 bits."),
    Code("E104", "Loops make too many iterations."),
    Code("E105", "A transfer names a rank that there is not."),
    Code("E106", "A transfer names a chunk that there is not."),
    Code("E107", "A rank transfers to itself."),
    Code("E108", "A transfer's step is out of range."),
    Code("E109", "A collective that reduces nothing has a transfer with `rrc`.", "Use `recv`."),
    Code("E110", "A number is divided by zero."),
    Code("E111", "An exponent is negative, or a shift not by 0 to 63 bits."),
    Code("E112", "A program makes too many transfers."),
    Code(
        "E113",
        "A loop that carries a variable makes too many iterations.",
        "Compute the variable from the loop variables.",
    ),
    Code("E114", "Evaluating a program takes too long."),
    Code("E115", "The stride of a range is 0."),
    Code("E116", "A list has no element at a position."),
    Code("E117", "A list stands where a number must.", "Index it, or ask for its `len`."),
    Code("E118", "A number stands where a list must."),
    Code(
        "E119",
        "A value is a number in some iterations and a list in others, or a list mixes unlike ones.",
    ),
    Code(
        "E120",
        "A step of a job does not fit the vendor clusters: a rank, part or vendor cluster in it.",
        "docs/jobs.md has every step.",
    ),
    Code(
        "E130",
        "A program or a plan has another number of ranks than the cluster has GPUs.",
        "Give a cluster of as many GPUs as there are ranks.",
    ),
    Code(
        "E131",
        "The cluster has no path between two ranks that exchange data.",
        "Give another cluster, or transfer by ranks that have links.",
    ),
    Code("E132", "A number in a cluster file is out of range, or names a part that is not there."),
    Code(
        "E133",
        "A rate or a latency in a cluster file is zero.",
        "Leave out what is not there; say what failed with `define failed`.",
    ),
    Code("E134", "A cluster file defines something twice or out of order."),
    Code("E135", "A cluster is not connected."),
    Code("E136", "`nodenum` is not how many nodes are defined."),
    Code("E137", "A cluster has too many GPUs, links or tiers."),
    Code("E138", "A cluster file uses a key, a unit or a name that there is not."),
    Code(
        "E139",
        "Devices of two vendors are to address each other's memory.",
        "Leave one node out of the memory domain: what goes between them is then a message.",
    ),
    Code("E201", "A rank sends a chunk of which it has nothing."),
    Code("E202", "A rank reduces into a chunk of which it has nothing."),
    Code("E203", "A contribution would be added twice to one chunk."),
    Code("E204", "Two transfers of one step touch one chunk at one rank, and one of them writes."),
    Code("E205", "The collective's result does not hold at the end."),
    Code("E206", "A Program that was made in Python breaks its invariants."),
    Code("E207", "A step of a job moves over a border what is there already, or is never used."),
    Code("E208", "A job breaks its invariants: ranks, parts or vendor clusters do not fit."),
    Code("W201", "A transfer brings a rank what it holds already."),
    Code("W202", "Nothing that the collective wants comes of a transfer."),
    Code("E301", "Flags or messages of a plan do not pair: what is waited for is not raised once."),
    Code("E302", "Thread blocks of a plan would wait for each other for ever."),
    Code("E303", "A plan hangs with as few queue slots as it has.", "Give it more --slots."),
    Code("E304", "Two primitives of a plan touch the same memory, and nothing orders them."),
    Code("E305", "A primitive of a plan writes the send buffer."),
    Code(
        "E306",
        "A primitive of a plan combines what it must not: nothing, or one contribution twice.",
    ),
    Code("E307", "A plan does not compute its collective's result."),
    Code("E308", "A plan of protocol LL could overwrite packets that are not read yet."),
    Code("E310", "A single value of a plan is out of range, or disagrees with the others."),
    Code("E311", "The columns of a plan's tables do not fit together."),
    Code("E312", "An operand of a plan lies outside its buffer, or cannot be used so."),
    Code("E313", "The flags of a plan are not each raised once and waited for."),
    Code("E314", "The queues of a plan do not fit its transport or its messages."),
    Code("E315", "A plan asks for more memory than its primitives touch."),
    Code("E316", "A plan has more of something than generated code can count."),
    Code(
        "E317",
        "Kernels would need a table that is nearly all holes.",
        "Give the ranks that take part numbers that follow each other.",
    ),
    Code(
        "E318",
        "A mixed plan touches memory of another memory domain as no network can.",
        "Compile it again from its source, for the cluster that it runs on.",
    ),
    Code(
        "E319",
        "The plans and ranges of a catalogue do not fit together.",
        "Compile it again from its sources.",
    ),
    Code(
        "E320",
        "An imported plan cannot be raised to a program, so it cannot be rescheduled.",
        "Use it as it is, without --reschedule.",
    ),
    Code("E321", "Several algorithms cannot be one library."),
    Code(
        "E322",
        "An element would be summed in an order that depends on the size of a call or on the rank.",
        "Sum all chunks alike, at one rank; or leave out --deterministic.",
    ),
    Code("E323", "Protocol LL is asked for what it cannot do.", "Leave --protocol at simple."),
    Code("E324", "Multicast is asked for what no switch can do.", "Leave --transport at auto."),
    Code(
        "E330", "The text of a reduction of one's own is none, or has a name that it cannot have."
    ),
    Code("E331", "A reduction of one's own gives an operation what it does not take."),
    Code(
        "E332",
        "A reduction of one's own is not associative or commutative.",
        "Write it so that every order of the ranks gives the same, ties too.",
    ),
    Code("E400", "The command line cannot be understood.", "`hccc COMMAND --help`."),
    Code("E401", "A file cannot be read."),
    Code("E402", "A file is not UTF-8 text."),
    Code("E403", "A file is empty."),
    Code("E404", "A file is larger than its language allows."),
    Code("E406", "A file is not JSON, or no plan can be read from it."),
    Code(
        "E407",
        "A plan's JSON breaks its schema, or is of another version.",
        "Compile it again from its source.",
    ),
    Code("E410", "An option has a value that it cannot have."),
    Code("E411", "There is no such reduction."),
    Code("E412", "There is no C++ compiler.", "Install one (g++), or set CXX to its path."),
    Code(
        "E413",
        "There is no directory for compiled libraries that only this user can write to.",
        "Set XDG_CACHE_HOME to one.",
    ),
    Code("E414", "The compiler of kernels failed on a source."),
    Code("E415", "Options do not go together, or leave out what the command must know."),
    Code("E416", "An option has no meaning for an input of this kind."),
    Code("E417", "There is no such element type."),
    Code(
        "E418",
        "More message sizes are asked for than one run has.",
        "A larger factor (-f) or step (-i), or a smaller end (-e).",
    ),
    Code(
        "E420",
        "A launch made no progress until its deadline.",
        "Raise the timeout if the machine is only slow.",
    ),
    Code("E421", "A number of a launch request is out of range."),
    Code("E422", "A buffer of a launch is missing, too small, read-only or of another type."),
    Code("E423", "The buffers of an in-place launch do not lie where the collective puts them."),
    Code("E424", "No cluster is given, and times are a cluster's.", "Give --cluster FILE."),
    Code("E425", "The CuPy that is installed is for GPUs of another vendor."),
    Code(
        "E426",
        "The window is larger than the plan's queues have room for.",
        "Give a smaller --window.",
    ),
    Code("E427", "A directory has no kernels for the device asked for, or none of its plan."),
    Code(
        "E428",
        "A directory has files that its plan does not emit, or that differ from what it emits; "
        "nothing of it is compiled or run.",
        "Compile it again; remove what hccc did not write.",
    ),
    Code("E429", "The sizes asked for do not fit into memory.", "Give a smaller -e."),
    Code(
        "E430",
        "The place for the output holds something that hccc did not write.",
        "Give another place, or remove what is there.",
    ),
    Code("E431", "An output file cannot be written."),
    Code("E432", "The GPU cannot run all thread blocks of a launch at once."),
    Code("E433", "An output file's name does not end as its format does."),
    Code("E434", "The input has no picture of the kind asked for."),
    Code("E435", "Another process has been writing to the same place all the time."),
    Code(
        "E436",
        "A network was asked for where none can be: nothing of the plan crosses one, it "
        "reads memory across it, or all ranks are on one GPU.",
        "Compile with --transport auto for several nodes; leave --network out on a GPU.",
    ),
    Code(
        "E438",
        "The text of a kernel does something else than its plan says.",
        "Compile the program again; if it is still so, this is a bug in hccc.",
    ),
    Code(
        "E439",
        "The text of a kernel cannot be run to hold it against its plan: it has words that "
        "hccc does not write, does not compile for the host, stops, or does not end.",
    ),
    Code("E440", "The operating system refused something else: a full disk, a closed stream."),
    Code("E441", "There is not enough memory."),
    Code("E451", "The built-in algorithm asked for does not exist for this collective or cluster."),
    Code("E452", "A built-in algorithm would have too many transfers."),
    Code(
        "E453",
        "A custom collective cannot average: it does not say where sums end.",
        "Use sum (-o sum).",
    ),
    Code("E454", "A launch has more of something than kernels can count."),
    Code("E455", "There is no memory, or there are no threads, for a launch's thread blocks."),
    Code("E456", "A Python package that this needs is not installed."),
    Code("E457", "There is no usable GPU.", "Launch on the CPU."),
    Code(
        "E458",
        "No values are known that a reduction of one's own is exact for, in any order.",
        "Run it without a check (-c 0), or with another type.",
    ),
    Code(
        "E459",
        "Launches cannot be recorded: on an AMD GPU, or with kernels built without it.",
        "Leave --trace out.",
    ),
    Code(
        "E460",
        "A plan does not serve calls of this kind (in place, out of place).",
        "Ask for the other kind, or compile for both (--calls).",
    ),
    Code(
        "E461",
        "A simulation would have too many primitives and micro-batches.",
        "Give a larger --micro-batch.",
    ),
    Code("E462", "The simulated plan hangs.", "A smaller --window, or more --slots."),
    Code(
        "E463",
        "A cluster is not one that the model of NCCL and RCCL is for.",
        "Simulate a plan on it.",
    ),
    Code("E464", "NCCL and RCCL have no such algorithm or protocol for a collective and cluster."),
    Code("E465", "A word names no collective."),
    Code("E466", "The library asked for does not run on the cluster's devices."),
    Code("E467", "A prediction is asked for of nothing, of two things, or without what it needs."),
    Code("E470", "The platform asked for is not on this machine, or is none."),
    Code(
        "E471",
        "An object is no array whose memory kernels can use: of no known protocol, device "
        "or element type, with gaps, or read-only.",
    ),
    Code("E472", "A call of the device layer failed."),
    Code(
        "E473",
        "A call of a communicator failed: another rank is gone or calls something else, "
        "a deadline passed, or what was given makes no sense.",
    ),
    Code(
        "E474",
        "A host that ranks are to run on is none, cannot be reached, or has another hccc or none.",
    ),
    Code(
        "E475",
        "A rank of what `hccc launch` runs ended with an error.",
        "What the rank printed says why.",
    ),
    Code("E476", "A command cannot be started on a host: no such file, command or directory."),
    Code("E477", "A result is asked for in a form of a package that is not installed."),
    Code(
        "E478",
        "The directory for kernels has those for another cluster.",
        "Say --overwrite, or give another directory.",
    ),
    Code(
        "E479",
        "Two algorithms that are compared are of two collectives, or of other ranks.",
        "Give two of one collective, of as many ranks and the same root.",
    ),
    Code("E480", "The ranks of a job did not meet, or lost each other."),
    Code(
        "E481",
        "A job is given to what needs a plan: jobs have no kernels; hccc checks, "
        "simulates, explains, draws and runs them, and compiles them to tables.",
        "Give it a program, as `hccc builtin hierarchical` writes one.",
    ),
    Code(
        "E482", "A job's text says no vendor clusters, and no cluster is given.", "Add --cluster."
    ),
    Code("E484", "A command needs a package that is not installed.", "Install it, as it says."),
    Code("E485", "UCX, which carries what goes between hosts, is not here, or is too old."),
    Code("E486", "The transport between hosts refused something."),
    Code(
        "E487",
        "What a compiler makes of a kernel has an instruction that the machine does not run.",
        "An instruction is to be added to it; please report it.",
    ),
    Code(
        "E488",
        "On a machine that emulates a GPU a kernel touched memory that it must not, what another "
        "has written and nothing has ordered before, or a register that a load has yet to write.",
        "This is a bug in hccc's kernels; please report it with the program.",
    ),
    Code(
        "W401",
        "Thread blocks set the pace of a call, where more would not.",
        "More --channels, or let hccc choose.",
    ),
    Code("W402", "A plan was compiled for another cluster.", "Compile it again for this one."),
    Code(
        "W403",
        "The header's nChannels gives way to what is faster on the cluster.",
        "--channels keeps it.",
    ),
    Code(
        "W404",
        "A trace of a run has not all that its kernels recorded.",
        "Fewer bytes, or a larger --micro-batch.",
    ),
    Code(
        "W405",
        "The header's GPUPerNode or NICPerNode is not that of the cluster.",
        "Times are the cluster's; make the header say the same, or leave it out there.",
    ),
    Code(
        "W406",
        "What was measured between hosts is not what a cluster says: neither a latency and a "
        "bandwidth, or not the same both ways.",
        "Measure while nothing else runs, or for longer; look at both ends of the line.",
    ),
    Code("E501", "A file is not XML, or uses entities or a DTD."),
    Code("E502", "An XML file is not an MSCCL algorithm."),
    Code("E503", "A file is no schedule of TE-CCL, whose chunks have paths from GPU to GPU."),
    Code("E511", "An MSCCL algorithm describes no collective that hccc knows."),
    Code("E512", "A step of an MSCCL algorithm has no peer, a wrong one, or does nothing."),
    Code("E513", "A step of an MSCCL algorithm names a chunk outside its buffer."),
    Code("E514", "Two thread blocks of an MSCCL algorithm use one connection on one channel."),
    Code("E515", "Sends and receives of an MSCCL algorithm do not match."),
    Code("E516", "A step of an MSCCL algorithm waits for one that is not there."),
    Code("E517", "An MSCCL algorithm has far more chunks than its steps touch."),
    Code("E518", "An MSCCL algorithm reads scratch that no step writes."),
    Code(
        "E520",
        "MSCCL XML cannot express a plan that does not send and receive.",
        "Compile with --transport staged.",
    ),
    Code("E521", "Thread blocks of a plan have more peers or share connections than MSCCL can."),
    Code("E522", "MSCCL's runtimes have no such collective, root or reduction."),
    Code("E523", "A plan exceeds a limit of MSCCL's runtimes."),
    Code(
        "E524",
        "One exported file is asked to serve calls both in place and out of place.",
        "Export one file for each kind of call (--calls).",
    ),
    Code("E525", "No step of MSCCL does what a primitive does."),
    Code("E526", "The plan's name cannot stand in the exported file."),
    Code(
        "E530",
        "MSCCL++ cannot express a plan that does not put and get.",
        "Compile with --transport direct.",
    ),
    Code("E531", "No operation of MSCCL++ does what a primitive does."),
    Code("E532", "MSCCL++'s executor has no such collective or reduction."),
    Code("E533", "A plan exceeds a limit of MSCCL++'s executor."),
    Code(
        "E534",
        "A plan reads or writes memory out of reach of MSCCL++'s memory channels.",
        "Compile for one node, or say how many ranks share a domain.",
    ),
    Code(
        "E540",
        "A file describes no machine: it is neither a topology of NCCL or RCCL nor the "
        "table of `nvidia-smi topo -m`, or it names no GPU.",
    ),
    Code(
        "E541",
        "A description of a machine contradicts itself, or has more of something than "
        "machines have.",
    ),
    Code(
        "E542",
        "Nothing says what a machine's GPUs are, or what is said is not in the library.",
        "Give --device and --network as docs/devices.md names them.",
    ),
)

CODES: Mapping[str, Code] = MappingProxyType({code.name: code for code in TABLE})


def page() -> str:
    """Writes the registry as a page of Markdown: one table per group, in the registry's order."""
    parts = [_HEAD]
    group = None
    for code in TABLE:
        title = next(title for prefix, title in _GROUPS.items() if code.name.startswith(prefix))
        if title != group:
            parts.append(f"\n## {title}\n\n| code | meaning | what to do |\n|---|---|---|")
            group = title
        parts.append(f"| {code.name} | {code.meaning} | {code.remedy} |")
    return "\n".join(parts) + "\n"


_HEAD = """\
# Errors and warnings

This page says what each code of an error or a warning means, and what to do.

Every message has a code, and every code one meaning. The message itself names the place and says
what is wrong there. The page is written from
`compiler/base/codes.py` (`pytest tests/base/test_codes.py --update-golden`)."""
