"""libevenkeel as others link it: installed into a fresh folder, found by pkg-config,
used from C and C++, shared and static; it exports what its header declares."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["EK_BIN"])
PROGRAM = r"""
#include <evenkeel/session.h>
#include <stdio.h>
#include <string.h>

static int talk(struct ek_tracker *t)
{
    EK_SESSION_SCOPE(session, t);
    if (!session.id)
        return 1;
    struct ek_tracker_report r;
    ek_tracker_read(t, &r, sizeof r);
    return r.active_sessions == 1 ? 0 : 2;
}

int main(void)
{
    struct ek_tracker_options o;
    struct ek_tracker *t;
    char why[200], text[EK_TRACKER_ENCODED_MAX];
    size_t len;
    ek_tracker_options_init(&o, sizeof o);
    o.max_sessions = 5;
    if (ek_tracker_new(&t, &o, why, sizeof why))
        return printf("%s\n", why);
    for (int i = 0; i < 100; i++)
        if (talk(t))
            return 3;
    EXTRA
    if (ek_tracker_encode(t, EK_TRACKER_AGENT, text, sizeof text, &len))
        return 4;
    struct ek_tracker_report r;
    ek_tracker_read(t, &r, sizeof r);
    printf("%s active=%d begun=%d %s", ek_tracker_version(), (int)r.active_sessions,
           (int)r.begun_total, text);
    ek_tracker_free(t);
    return 0;
}
"""
THROWS = r"""
    try {
        EK_SESSION_SCOPE(session, t);
        throw 1;
    } catch (int) {
    }
"""
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def run(*command, **more):
    return subprocess.run(command, check=True, text=True, capture_output=True, **more).stdout


def exported(*nm):
    lines = run("nm", *nm).splitlines()
    return {l.split()[-1].split("@")[0] for l in lines if re.search(r" [TDBRWV] ", l)}


class Library(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="evenkeel-install-")
        cls.prefix = pathlib.Path(cls.folder.name, "some where")
        run("cmake", "--install", str(BUILD), "--component", "libevenkeel",
            "--prefix", str(cls.prefix))
        cls.lib = next(cls.prefix.rglob("libevenkeel.so")).parent
        cls.env = dict(os.environ, PKG_CONFIG_PATH=str(cls.lib / "pkgconfig"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def flags(self, *options):
        return shlex.split(run("pkg-config", *options, "evenkeel", env=self.env))

    def build(self, compiler, source, name, libs):
        suffix = ".cc" if "++" in compiler[0] else ".c"
        path = pathlib.Path(self.folder.name, name + suffix)
        path.write_text(source)
        program = str(path.with_suffix(""))
        run(*compiler, *WARNINGS, *self.flags("--cflags"), str(path), "-o", program, *libs)
        return program

    def expect(self, program, begun):
        out = run(program, env=dict(os.environ, LD_LIBRARY_PATH=str(self.lib)))
        self.assertRegex(out, rf"^\d+\.\d+\.\d+ active=0 begun={begun} up \d+%\n$")

    def test_a_c_program_links_the_shared_library(self):
        program = self.build(["cc", "-std=c99"], PROGRAM.replace("EXTRA", ""), "shared",
                             self.flags("--libs"))
        self.expect(program, 100)
        needed = run("readelf", "-d", program)
        self.assertIn("libevenkeel.so.1", needed)

    def test_a_c_program_links_the_static_library(self):
        program = self.build(["cc", "-std=c17"], PROGRAM.replace("EXTRA", ""), "static",
                             ["-static", *self.flags("--static", "--libs")])
        self.expect(program, 100)

    def test_names_of_the_application_do_not_collide(self):
        # Functions that the library has inside, too, under the same names.
        source = PROGRAM.replace("EXTRA", "if (ek_slots_new() != 7 || ek_free() != 8) return 9;")
        source = "static int one; int ek_slots_new(void); int ek_free(void);\n" + \
            "int ek_slots_new(void) { return 7 + one; }\n" + \
            "int ek_free(void) { return 8; }\n" + source
        for name, libs in (("mine", self.flags("--libs")),
                           ("mine_static", [str(self.lib / "libevenkeel.a"), "-lm",
                                            "-pthread"])):
            self.expect(self.build(["cc"], source, name, libs), 100)

    @unittest.skipUnless(shutil.which("g++"), "g++ is not installed")
    def test_a_cxx_program_ends_its_sessions_by_exceptions_too(self):
        for standard in ("c++11", "c++20"):
            program = self.build(["g++", "-std=" + standard], PROGRAM.replace("EXTRA", THROWS),
                                 "cxx", self.flags("--libs"))
            self.expect(program, 101)

    def test_both_export_what_the_header_declares(self):
        header = next(self.prefix.rglob("session.h")).read_text()
        declared = set(re.findall(r"EK_SESSION_API\s[^;]*?\b(ek_\w+)\(", header))
        self.assertGreater(len(declared), 15)
        shared = exported("-D", "--defined-only", str(self.lib / "libevenkeel.so"))
        self.assertEqual(shared - {"EVENKEEL_1"}, declared)
        self.assertEqual(exported("-g", "--defined-only", str(self.lib / "libevenkeel.a")),
                         declared)

    def test_nothing_but_the_c_library_is_needed(self):
        text = run("readelf", "-d", str(self.lib / "libevenkeel.so"))
        needed = set(re.findall(r"NEEDED.*\[(.*?)\]", text))
        others = {n for n in needed if not re.match(r"(libc|libm|libpthread|ld-linux\S*)\.so", n)}
        self.assertEqual(others, set())


if __name__ == "__main__":
    library = BUILD / "libevenkeel.so"
    for tool in ("cc", "cmake", "nm", "readelf", "pkg-config"):
        if not shutil.which(tool):
            print(f"{tool} is not installed")
            sys.exit(77)
    if not library.exists():
        print(f"{library} is not built")
        sys.exit(77)
    if re.search(r"__[at]san_", run("nm", "-D", str(library))):
        print("the library is built with a sanitizer")
        sys.exit(77)
    unittest.main()
