/* svg.h - the pieces of the drawings that keel makes: one look, light and dark.
 *
 * The page's own style follows what the viewer prefers (prefers-color-scheme). Classes:
 *   title head            text that stands out (text without a class is secondary)
 *   page bar axis grid    rectangles and lines
 *   line s0 .. s7         a curve, in one of EK_SVG_COLOURS colours; s0 as bars
 *   f0 .. f7              the same colours for text and filled shapes
 *   mark of               a mark across a drawing, and what is said of it
 * Numbers are written with one digit behind the point. Errors of all: ek_buf_add's.
 */
#ifndef EVENKEEL_BASE_SVG_H
#define EVENKEEL_BASE_SVG_H

#include "base/buf.h"

#define EK_SVG_COLOURS 8

/* The element, its <title>, the style and the page; end closes it. */
int ek_svg_begin(struct ek_buf *out, double width, double height,
                 const char *title) EK_MUST_USE;
int ek_svg_end(struct ek_buf *out) EK_MUST_USE;

/* attributes: "" or " class=\"head\" text-anchor=\"end\"", as it is. text: any bytes; what
 * XML cannot hold becomes U+FFFD. */
int ek_svg_text(struct ek_buf *out, double x, double y, const char *attributes,
                const char *text) EK_MUST_USE;

int ek_svg_line(struct ek_buf *out, const char *class, double x1, double y1, double x2,
                double y2) EK_MUST_USE;

/* title: shown under the pointer. */
int ek_svg_bar(struct ek_buf *out, double x, double y, double width, double height,
               unsigned long long title) EK_MUST_USE;

#endif
