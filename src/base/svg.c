#include "base/svg.h"

#include "base/utf8.h"

#include <string.h>

/* Each colour reads on its page at 3 to 1 or better. */
static const char style[] =
    "<style>\n"
    "text{font:12px system-ui,sans-serif;fill:#59636e}\n"
    ".title{font-size:15px;font-weight:600;fill:#1f2328}\n"
    ".head{font-size:13px;font-weight:600;fill:#1f2328}\n"
    ".page{fill:#ffffff}.bar{fill:#2f6fab}\n"
    ".axis{stroke:#8c959f}.grid{stroke:#d8dee4}\n"
    ".line{fill:none;stroke-width:1.6;stroke-linejoin:round}\n"
    ".s0{stroke:#2f6fab}.s1{stroke:#c2410c}.s2{stroke:#2e7d32}.s3{stroke:#8e44ad}\n"
    ".s4{stroke:#00838f}.s5{stroke:#c2185b}.s6{stroke:#8a6d00}.s7{stroke:#5d4037}\n"
    ".f0{fill:#2f6fab}.f1{fill:#c2410c}.f2{fill:#2e7d32}.f3{fill:#8e44ad}\n"
    ".f4{fill:#00838f}.f5{fill:#c2185b}.f6{fill:#8a6d00}.f7{fill:#5d4037}\n"
    ".mark{stroke:#a04000;stroke-dasharray:4 3}.of{fill:#a04000}\n"
    "@media (prefers-color-scheme:dark){\n"
    "text{fill:#a3adb8}.title,.head{fill:#f0f3f6}\n"
    ".page{fill:#0f141a}.bar{fill:#5da9e9}\n"
    ".axis{stroke:#6b7580}.grid{stroke:#2a323b}\n"
    ".s0{stroke:#5da9e9}.s1{stroke:#ffab5e}.s2{stroke:#7bd389}.s3{stroke:#c9a0ff}\n"
    ".s4{stroke:#5fd3df}.s5{stroke:#ff8fb8}.s6{stroke:#f2d15c}.s7{stroke:#c8ab9f}\n"
    ".f0{fill:#5da9e9}.f1{fill:#ffab5e}.f2{fill:#7bd389}.f3{fill:#c9a0ff}\n"
    ".f4{fill:#5fd3df}.f5{fill:#ff8fb8}.f6{fill:#f2d15c}.f7{fill:#c8ab9f}\n"
    ".mark{stroke:#ffab5e}.of{fill:#ffab5e}\n"
    "}\n"
    "</style>\n";

static bool is_xml_char(uint32_t c)
{
    return c >= 0x20 && c != 0x7f && c != 0xfffe && c != 0xffff;
}

/* Text as the content of an element or of an attribute in quotes. */
static int add_escaped(struct ek_buf *out, const char *s)
{
    size_t n = strlen(s);
    int rc = 0;
    for (size_t i = 0; i < n && !rc;) {
        uint32_t c = 0;
        size_t len = ek_utf8_decode(&c, s + i, n - i);
        if (len == 0 || !is_xml_char(c))
            rc = ek_buf_add_str(out, "\xef\xbf\xbd");
        else if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'')
            rc = ek_buf_addf(out, "&#%u;", (unsigned)c);
        else
            rc = ek_buf_add(out, s + i, len);
        i += len ? len : 1;
    }
    return rc;
}

int ek_svg_begin(struct ek_buf *out, double width, double height, const char *title)
{
    int rc = ek_buf_addf(out,
                         "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
                         "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n"
                         "<title>",
                         width, height, width, height);
    if (!rc)
        rc = add_escaped(out, title);
    if (!rc)
        rc = ek_buf_add_str(out, "</title>\n");
    if (!rc)
        rc = ek_buf_add_str(out, style);
    return rc ? rc
              : ek_buf_addf(out,
                            "<rect class=\"page\" width=\"%.0f\" height=\"%.0f\"/>\n",
                            width, height);
}

int ek_svg_end(struct ek_buf *out)
{
    return ek_buf_add_str(out, "</svg>\n");
}

int ek_svg_text(struct ek_buf *out, double x, double y, const char *attributes,
                const char *text)
{
    int rc = ek_buf_addf(out, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, attributes);
    if (!rc)
        rc = add_escaped(out, text);
    return rc ? rc : ek_buf_add_str(out, "</text>\n");
}

int ek_svg_line(struct ek_buf *out, const char *class, double x1, double y1, double x2,
                double y2)
{
    return ek_buf_addf(out,
                       "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                       "y2=\"%.1f\"/>\n",
                       class, x1, y1, x2, y2);
}

int ek_svg_bar(struct ek_buf *out, double x, double y, double width, double height,
               unsigned long long title)
{
    return ek_buf_addf(out,
                       "<rect class=\"bar\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                       "height=\"%.1f\"><title>%llu</title></rect>\n",
                       x, y, width, height, title);
}
