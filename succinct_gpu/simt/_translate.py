"""From the LLVM IR that numba-cuda makes for a GPU to IR that runs on the host.

LLVM itself parses, links and prints the modules, so that what is edited here is text in one form:
an instruction a line, opaque pointers. Intrinsics of the GPU become calls of functions that
`PRELUDE` defines on top of the C runtime. A call that can wait or fail is given a number, its
site, which says where in the Python source it stands.
"""

import re
from collections.abc import Callable

from succinct_gpu.simt._options import SimtError

# Called with their site as a further, last argument.
_SITED = re.compile(
    r"simt\.(barrier0.*|bar\.warp\.sync|vote\.sync|shfl\.sync\..*|match\..*)$|cudaCGSynchronize$"
)
_ASSEMBLY = {
    "activemask.b32 $0;": "simt.activemask",
    "mov.u32 $0, %lanemask_lt;": "simt.lanemask_lt",
    "mov.u32 $0, %dynamic_smem_size;": "simt.dynamic_shared",
    "mov.u64 $0, %clock64;": "simt_clock",
    "nanosleep.u32 $0;": "simt_nanosleep",
    "cvt.f32.f16 $0, $1;": "simt.half_to_float",
    "cvt.f64.f16 $0, $1;": "simt.half_to_double",
    "cvt.rn.f16.f32 $0, $1;": "simt.float_to_half",
}
# Of libdevice, what libm has under another name or not at all.
_LIBDEVICE = {
    **{name: f"simt_{name}" for name in ("ffs", "ffsll", "brev", "brevll")},
    **{name: f"simt_{name}" for name in ("isnand", "isnanf", "isinfd", "isinff")},
    **{name: f"simt_{name}" for name in ("isfinited", "finitef")},
    "abs": "abs",
    "llabs": "llabs",
}


def _registers() -> str:
    axes = [f"{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
    text = ""
    for name in [*axes, "laneid", "warpsize"]:
        runtime = f"simt_{name.replace('.', '_')}"
        text += f"""
declare i32 @{runtime}() memory(none) nounwind willreturn
define internal i32 @simt.read.ptx.sreg.{name}() alwaysinline {{
  %r = call i32 @{runtime}()
  ret i32 %r
}}"""
    for name in ("lanemask_lt", "dynamic_shared"):
        text += f"""
declare i32 @simt_{name}() memory(none) nounwind willreturn
define internal i32 @simt.{name}() alwaysinline {{
  %r = call i32 @simt_{name}()
  ret i32 %r
}}"""
    return text


def _votes() -> str:
    text = ""
    for kind in ("popc", "and", "or"):
        text += f"""
declare i32 @simt_barrier_{kind}(i32, i32) convergent nounwind
define internal i32 @simt.barrier0.{kind}(i32 %p, i32 %site) alwaysinline convergent {{
  %r = call i32 @simt_barrier_{kind}(i32 %p, i32 %site)
  ret i32 %r
}}"""
    for width in (32, 64):
        widened = "  %w = zext i32 %v to i64\n" if width == 32 else "  %w = or i64 %v, 0\n"
        text += f"""
define internal i32 @simt.match.any.sync.i{width}(i32 %m, i{width} %v, i32 %site) \
alwaysinline convergent {{
{widened}  %r = call i32 @simt_match_any(i32 %m, i64 %w, i32 %site)
  ret i32 %r
}}
define internal {{ i32, i1 }} @simt.match.all.sync.i{width}(i32 %m, i{width} %v, i32 %site) \
alwaysinline convergent {{
{widened}  %r = call i64 @simt_match_all(i32 %m, i64 %w, i32 %site)
  %u = call {{ i32, i1 }} @simt.unpack(i64 %r)
  ret {{ i32, i1 }} %u
}}"""
    for name in ("cta", "gl", "sys"):
        text += f"""
define internal void @simt.membar.{name}() alwaysinline {{
  fence seq_cst
  ret void
}}"""
    for name, operation, kind in (
        ("add.f32.p0f32", "fadd", "float"),
        ("add.f64.p0f64", "fadd", "double"),
        ("inc.32.p0i32", "uinc_wrap", "i32"),
        ("dec.32.p0i32", "udec_wrap", "i32"),
    ):
        text += f"""
define internal {kind} @simt.atomic.load.{name}(ptr %p, {kind} %v) alwaysinline {{
  %r = atomicrmw {operation} ptr %p, {kind} %v monotonic
  ret {kind} %r
}}"""
    return text


PRELUDE = (
    """
declare void @simt_barrier(i32) convergent nounwind
declare void @simt_syncwarp(i32, i32) convergent nounwind
declare i64 @simt_vote(i32, i32, i32, i32) convergent nounwind
declare i64 @simt_shuffle(i32, i32, i32, i32, i32, i32) convergent nounwind
declare i32 @simt_match_any(i32, i64, i32) convergent nounwind
declare i64 @simt_match_all(i32, i64, i32) convergent nounwind
declare i64 @simt_grid_handle(i32) nounwind
declare i32 @simt_grid_sync(i64, i32, i32) convergent nounwind
declare i32 @simt_activemask() convergent nounwind
declare ptr @simt_shared(i64) memory(none) nounwind willreturn
declare i64 @simt_clock() convergent nounwind
declare void @simt_nanosleep(i32) convergent nounwind
declare void @simt_trap(i32) noreturn nounwind
declare void @simt_access(ptr, i64, i32, i32) nounwind
declare void @simt_give_way() nounwind
declare float @simt_half_to_float(i16 zeroext) memory(none) nounwind willreturn
declare zeroext i16 @simt_float_to_half(float) memory(none) nounwind willreturn
define internal { i32, i1 } @simt.unpack(i64 %r) alwaysinline {
  %low = trunc i64 %r to i32
  %high = lshr i64 %r, 32
  %flag = trunc i64 %high to i1
  %a = insertvalue { i32, i1 } poison, i32 %low, 0
  %b = insertvalue { i32, i1 } %a, i1 %flag, 1
  ret { i32, i1 } %b
}
define internal void @simt.barrier0(i32 %site) alwaysinline convergent {
  call void @simt_barrier(i32 %site)
  ret void
}
define internal void @simt.bar.warp.sync(i32 %m, i32 %site) alwaysinline convergent {
  call void @simt_syncwarp(i32 %m, i32 %site)
  ret void
}
define internal { i32, i1 } @simt.vote.sync(i32 %m, i32 %mode, i1 %p, i32 %site) \
alwaysinline convergent {
  %q = zext i1 %p to i32
  %r = call i64 @simt_vote(i32 %m, i32 %mode, i32 %q, i32 %site)
  %u = call { i32, i1 } @simt.unpack(i64 %r)
  ret { i32, i1 } %u
}
define internal { i32, i1 } @simt.shfl.sync.i32(i32 %m, i32 %mode, i32 %v, i32 %b, i32 %c, \
i32 %site) alwaysinline convergent {
  %r = call i64 @simt_shuffle(i32 %m, i32 %mode, i32 %v, i32 %b, i32 %c, i32 %site)
  %u = call { i32, i1 } @simt.unpack(i64 %r)
  ret { i32, i1 } %u
}
define internal i64 @cudaCGGetIntrinsicHandle(i32 %kind) alwaysinline {
  %r = call i64 @simt_grid_handle(i32 %kind)
  ret i64 %r
}
define internal i32 @cudaCGSynchronize(i64 %h, i32 %flags, i32 %site) alwaysinline convergent {
  %r = call i32 @simt_grid_sync(i64 %h, i32 %flags, i32 %site)
  ret i32 %r
}
define internal i32 @simt.activemask() alwaysinline convergent {
  %r = call i32 @simt_activemask()
  ret i32 %r
}
define internal float @simt.half_to_float(i16 %h) alwaysinline {
  %r = call float @simt_half_to_float(i16 zeroext %h)
  ret float %r
}
define internal double @simt.half_to_double(i16 %h) alwaysinline {
  %r = call float @simt_half_to_float(i16 zeroext %h)
  %d = fpext float %r to double
  ret double %d
}
define internal i16 @simt.float_to_half(float %v) alwaysinline {
  %r = call zeroext i16 @simt_float_to_half(float %v)
  ret i16 %r
}
"""
    + _registers()
    + _votes()
    + "\n"
)


def rename_intrinsics(text: str) -> str:
    """Take what is special to a GPU from LLVM's eyes, which would rewrite some of it.

    It puts other intrinsics for some, and gives kernels a calling convention of their own.
    """
    return text.replace("llvm.nvvm.", "simt.").replace("!nvvm.", "!simt.")


def libdevice_symbol(name: str) -> str | None:
    """Name on the host of a function of CUDA's math library; None if it is not one."""
    if not name.startswith("__nv_"):
        return None
    return _LIBDEVICE.get(name[5:], name[5:])


class Sites:
    """Descriptions of the calls of the runtime; a site is its place in `texts`."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._locations: dict[str, str] = {}

    def read_locations(self, module: str) -> None:
        """Note what the debug information of `module` says of its lines."""
        files = dict(re.findall(r'^!(\d+) = !DIFile\(filename: "([^"]*)"', module, re.M))
        scopes: dict[str, tuple[str, str]] = {}
        for number, fields in re.findall(
            r"^!(\d+) = (?:distinct )?!DI(?:Subprogram|LexicalBlock|LexicalBlockFile)\((.*)\)$",
            module,
            re.M,
        ):
            file = re.search(r"file: !(\d+)", fields)
            name = re.search(r'\bname: "([^"]*)"', fields)
            scopes[number] = (
                files.get(file[1], "?") if file else "?",
                name[1].rpartition(".")[2] if name else "",
            )
        self._locations = {}
        for number, line, scope in re.findall(
            r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+),.*?scope: !(\d+)", module, re.M
        ):
            file_name, function = scopes.get(scope, ("?", ""))
            inside = f" in {function}" if function else ""
            self._locations[number] = f"{file_name}:{line}{inside}"

    def complete(self, instruction: str, site: int) -> None:
        """Describe an earlier site by what inlining made of its location."""
        found = re.search(r"!dbg !(\d+)", instruction)
        if found and self.texts[site] == "?":
            self.texts[site] = self._locations.get(found[1], "?")

    def add(self, instruction: str) -> int:
        """A new site, described by the location that `instruction` refers to."""
        found = re.search(r"!dbg !(\d+)", instruction)
        self.texts.append(self._locations.get(found[1], "?") if found else "?")
        return len(self.texts) - 1


class SharedMemory:
    """Places of the static shared arrays of a kernel."""

    def __init__(self) -> None:
        self.size = 0
        self.grain = 16
        self._offsets: dict[str, int] = {}
        self._dynamic: set[str] = set()

    def add(self, name: str, size: int, grain: int) -> None:
        """Place an array of `size` bytes; 0 stands for the dynamic one."""
        if size == 0:
            self._dynamic.add(name)
            return
        self._offsets[name] = self.size
        self.size += -(-size // 16) * 16
        self.grain = min(self.grain, grain)

    def offset(self, name: str) -> int:
        """Where an array begins. The dynamic one comes last, so all must have been added."""
        return self.size if name in self._dynamic else self._offsets[name]


def to_host(module: str, shared: SharedMemory, sites: Sites) -> str:
    """Replace what only a GPU has in the text of a linked module."""
    sites.read_locations(module)
    lines = []
    for line in module.splitlines():
        if line.startswith(("@llvm.used", "target ", "!simt.", "source_filename")):
            continue
        if re.match(r"declare .*@(simt\.|cudaCG)", line) or re.match(
            r"@\S+ = .*addrspace\(3\) global", line
        ):
            continue
        if " call " in line or "addrspacecast" in line:
            line = _on_host(line, shared, sites)
        lines.append(line)
    return "\n".join(lines) + PRELUDE


def _on_host(line: str, shared: SharedMemory, sites: Sites) -> str:
    found = re.search(r"addrspacecast ptr addrspace\(3\) @\"?([\w.$]+)\"? to ptr", line)
    if found:
        call = f"call ptr @simt_shared(i64 {shared.offset(found[1])})"
        return line[: found.start()] + call + line[found.end() :]
    if "addrspace(3)" in line:
        raise SimtError(f"this use of shared memory is not supported: {line.strip()}")
    found = re.search(r'call (\S+) asm (?:sideeffect )?"([^"]*)", "[^"]*"\((.*?)\)', line)
    if found:
        function = _ASSEMBLY.get(found[2])
        if function is None:
            raise SimtError(
                f"this PTX is not supported: {found[2]!r}; convert float16 by way of float32"
                if found[2].startswith("cvt.")
                else f"this PTX is not supported: {found[2]!r}"
            )
        call = f"call {found[1]} @{function}({found[3]})"
        line = line[: found.start()] + call + line[found.end() :]
        return re.sub(r" #\d+(, !dbg|$)", r"\1", line)
    found = re.search(r"@(llvm\.trap|simt\.[\w.]+|cudaCG\w+)\((.*?)\)", line)
    if not found:
        return line
    name, arguments = found[1], found[2]
    if name == "llvm.trap":
        return line.replace("@llvm.trap()", f"@simt_trap(i32 {sites.add(line)})")
    if f"@{name}(" not in PRELUDE:
        raise SimtError(f"this intrinsic is not supported: {name.replace('simt', 'llvm.nvvm', 1)}")
    if _SITED.match(name):
        site = f"i32 {sites.add(line)}"
        arguments = f"{arguments}, {site}" if arguments else site
    return f"{line[: found.start()]}@{name}({arguments}){line[found.end() :]}"


_POINTER = r'ptr (%[\w.$-]+|%"[^"]+")'
_LOAD = re.compile(rf"= load (?:atomic )?(volatile )?(.+?), {_POINTER}")
_STORE = re.compile(rf"^\s+store (?:atomic )?(?:volatile )?(.+), {_POINTER}")
_ATOMIC = re.compile(
    rf"= (?:atomicrmw|cmpxchg) (?:weak )?(?:volatile )?(?:\w+ )?{_POINTER}, (\S+) "
)
_BLOCK = re.compile(
    r"call void @llvm\.mem(?:cpy|move|set)[\w.]*\("
    r"ptr [^,]*?(%[^\s,]+), (?:ptr [^,]*?(%[^\s,]+)|i8 [^,]+), i64 ([^,]+),"
)
_CALL = re.compile(r"@simt_(?:barrier|vote|shuffle|syncwarp|match|grid_sync).*i32 (\d+)\)")
_LOADS, _STORES, _ATOMICS = range(3)


def with_checks(module: str, size_of: Callable[[str], int], sites: Sites) -> str:
    """Put a call of the runtime before every access to memory of an optimised module."""
    sites.read_locations(module)
    lines = []
    in_entry = False
    for line in module.splitlines():
        if line.startswith("define "):
            in_entry = "@simt_entry(" in line  # parameters, which are no memory of the device
        for pointer, size, kind in [] if in_entry else _accesses(line, size_of):
            debug = re.search(r", !dbg !\d+", line)
            call = (
                f"  call void @simt_access(ptr {pointer}, i64 {size}, i32 {kind}, "
                f"i32 {sites.add(line)})"
            )
            lines.append(call + (debug[0] if debug else ""))
        if found := _CALL.search(line):
            sites.complete(line, int(found[1]))
        lines.append(line)
    text = "\n".join(lines)
    if "declare void @simt_access" not in text:
        text += "\ndeclare void @simt_access(ptr, i64, i32, i32) nounwind\n"
    return text


def _accesses(line: str, size_of: Callable[[str], int]) -> list[tuple[str, str, int]]:
    """Pointer, size and kind of what an instruction reads and writes."""
    if found := _LOAD.search(line):
        # Volatile are the loads of numba-cuda's own loops of compare and swap.
        return [(found[3], str(size_of(found[2])), _ATOMICS if found[1] else _LOADS)]
    if found := _STORE.search(line):
        return [(found[2], str(size_of(_type_of(found[1]))), _STORES)]
    if found := _ATOMIC.search(line):
        return [(found[1], str(size_of(found[2])), _ATOMICS)]
    if found := _BLOCK.search(line):
        accesses = [(found[1], found[3], _STORES)]
        if found[2]:
            accesses.insert(0, (found[2], found[3], _LOADS))
        return accesses
    return []


def _type_of(operand: str) -> str:
    """The type in front of a value."""
    if operand[0] not in "<[{":
        return operand.split(" ", 1)[0]
    depth = 0
    for i, character in enumerate(operand):
        depth += (character in "<[{") - (character in ">]}")
        if depth == 0:
            return operand[: i + 1]
    raise ValueError(operand)
