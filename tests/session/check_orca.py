"""The ORCA encodings, read by others: the protobuf by Google's runtime, from the message
as cncf/xds publishes it; JSON by Python; the Prometheus text by the rules of its format."""
import base64
import json
import os
import re
import struct
import subprocess
import sys
import unittest

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
except ImportError:
    print("protobuf for Python is not installed")
    sys.exit(77)

PROBE = os.path.join(os.environ["EK_BIN"], "tests", "probe_orca")
NAMED = {"active_sessions": 10, "session_cost": 0.15, "effective_capacity": 14,
         "remaining_sessions": 4, "young_sessions": 0, "young_weight": 0.5, "safety_factor": 2}


def load_report():
    """xds.data.orca.v3.OrcaLoadReport, built without protoc."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="orca.proto", package="xds.data.orca.v3",
                                              syntax="proto3")
    message = file.message_type.add(name="OrcaLoadReport")
    plain = {"cpu_utilization": 1, "mem_utilization": 2, "rps_fractional": 6, "eps": 7,
             "application_utilization": 9}
    for name, number in plain.items():
        message.field.add(name=name, number=number, type=field.TYPE_DOUBLE,
                          label=field.LABEL_OPTIONAL)
    message.field.add(name="rps", number=3, type=field.TYPE_UINT64, label=field.LABEL_OPTIONAL)
    for name, number in {"request_cost": 4, "utilization": 5, "named_metrics": 8}.items():
        entry = "".join(w.capitalize() for w in name.split("_")) + "Entry"
        nested = message.nested_type.add(name=entry)
        nested.options.map_entry = True
        nested.field.add(name="key", number=1, type=field.TYPE_STRING,
                         label=field.LABEL_OPTIONAL)
        nested.field.add(name="value", number=2, type=field.TYPE_DOUBLE,
                         label=field.LABEL_OPTIONAL)
        message.field.add(name=name, number=number, type=field.TYPE_MESSAGE,
                          label=field.LABEL_REPEATED,
                          type_name=f".xds.data.orca.v3.OrcaLoadReport.{entry}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("xds.data.orca.v3.OrcaLoadReport"))


class Orca(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.report = load_report()
        lines = subprocess.run([PROBE], check=True, text=True, capture_output=True).stdout
        cls.said = {name: bytes.fromhex(digits) for name, digits in
                    (line.split(" ") for line in lines.splitlines())}

    def expect(self, r):
        self.assertEqual(r.cpu_utilization, 0.5)
        self.assertEqual(r.mem_utilization, 0.1)
        self.assertEqual(r.rps_fractional, 10)
        self.assertAlmostEqual(r.application_utilization, 10 / 14, 9)
        self.assertEqual(r.eps, 0)
        self.assertEqual(dict(r.utilization), {"kv_pages": 0.2})
        self.assertEqual(set(r.named_metrics), set(NAMED))
        for name, value in NAMED.items():
            self.assertAlmostEqual(r.named_metrics[name], value, 9)

    def test_the_message_holds_the_figures_and_no_unknown_field(self):
        r = self.report()
        self.assertEqual(r.ParseFromString(self.said["proto"]), len(self.said["proto"]))
        self.expect(r)
        again = self.report()  # of the same length: nothing but what the message knows
        again.CopyFrom(r)
        self.assertEqual(len(again.SerializeToString()), len(self.said["proto"]))

    def test_header_and_trailer_are_its_base64(self):
        self.assertTrue(self.said["bin"].startswith(b"BIN "))
        for text in (self.said["bin"][4:], self.said["trailer"]):
            self.assertEqual(base64.b64decode(text, validate=True), self.said["proto"])

    def test_the_stream_message_has_grpcs_prefix(self):
        flag, length = struct.unpack(">BI", self.said["grpc"][:5])
        self.assertEqual((flag, length), (0, len(self.said["proto"])))
        self.assertEqual(self.said["grpc"][5:], self.said["proto"])

    def test_the_json_header_is_the_message_in_json(self):
        text = self.said["json_header"].decode()
        self.assertTrue(text.startswith("JSON "))
        self.expect(json_format.Parse(text[5:], self.report()))

    def test_the_text_header_has_each_key_once(self):
        text = self.said["text"].decode()
        self.assertTrue(text.startswith("TEXT "))
        pairs = [p.split("=") for p in text[5:].split(", ")]
        r, plain = self.report(), {}
        for key, value in pairs:
            self.assertNotIn(key, plain)
            plain[key] = float(value)
            map_name, dot, name = key.partition(".")
            if dot:
                getattr(r, map_name)[name] = float(value)
            else:
                setattr(r, key, float(value))
        self.expect(r)

    def test_the_poll_is_json(self):
        said = json.loads(self.said["json"])
        for name in ("active_sessions", "session_cost", "effective_capacity",
                     "remaining_sessions", "safety_factor"):
            self.assertAlmostEqual(said[name], NAMED[name], 9)
        self.assertEqual(said["binding"], "cpu")
        self.assertEqual(said["resources"]["kv_pages"]["capacity"], 30)

    def test_the_scrape_declares_each_family_once(self):
        families, label = set(), r'\{resource="[a-z_]+"\}'
        for line in self.said["prometheus"].decode().splitlines():
            if line.startswith("# HELP "):
                name = line.split(" ")[2]
                self.assertNotIn(name, families)
                families.add(name)
                self.assertLessEqual(len(name), 64)
            elif line.startswith("# TYPE "):
                self.assertEqual(line.split(" ")[2], name)
                self.assertEqual(line.endswith(" counter"), name.endswith("_total"))
            else:
                self.assertRegex(line, rf"^{name}({label})? -?[0-9.e+-]+$")
        self.assertIn("evenkeel_effective_capacity", families)

    def test_the_agent_line_is_words_haproxy_knows(self):
        self.assertEqual(self.said["agent"], b"up 28%\n")


if __name__ == "__main__":
    unittest.main()
