// markdown.js - the part of Markdown that models write, rendered with text nodes only:
// whatever a model says, it can never become markup or a request.
"use strict";

const markdown = (() => {
    // Inline: `code`, **strong**, *emphasis*. Links stay text.
    const INLINE = /(`+)(.+?)\1|\*\*(?=\S)(.+?)\*\*|\*(?=\S)([^*\n]+?)\*/s;

    function addInline(parent, text) {
        for (let m = INLINE.exec(text); m; m = INLINE.exec(text)) {
            parent.append(text.slice(0, m.index));
            const kind = m[1] ? "code" : m[3] !== undefined ? "strong" : "em";
            const node = document.createElement(kind);
            if (kind === "code") node.textContent = m[2];
            else addInline(node, kind === "strong" ? m[3] : m[4]);
            parent.append(node);
            text = text.slice(m.index + m[0].length);
        }
        parent.append(text);
    }

    function element(tag, text) {
        const node = document.createElement(tag);
        addInline(node, text);
        return node;
    }

    function codeBlock(lines) {
        const pre = document.createElement("pre");
        const code = document.createElement("code");
        code.textContent = lines.join("\n");
        pre.append(code);
        return pre;
    }

    const FENCE = /^\s*(```+|~~~+)/;
    const HEADING = /^(#{1,6})\s+(.*)$/;
    const ITEM = /^\s*(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
    const QUOTE = /^\s*>\s?(.*)$/;

    function takeWhile(lines, at, test) {
        let end = at;
        while (end < lines.length && test(lines[end])) end++;
        return end;
    }

    function addList(out, lines, at) {
        const first = ITEM.exec(lines[at]);
        const list = document.createElement(first[1] ? "ol" : "ul");
        if (first[1]) list.start = Number(first[1]);
        let item = null;
        for (; at < lines.length && lines[at].trim(); at++) {
            const m = ITEM.exec(lines[at]);
            if (m && Boolean(m[1]) !== Boolean(first[1])) break;
            if (m) list.append(item = element("li", m[2]));
            else addInline(item, " " + lines[at].trim());
        }
        out.append(list);
        return at;
    }

    function addBlock(out, lines, at) {
        const line = lines[at];
        const fence = FENCE.exec(line);
        if (fence) {
            const end = takeWhile(lines, at + 1, l => !l.trim().startsWith(fence[1]));
            out.append(codeBlock(lines.slice(at + 1, end)));
            return end + 1;
        }
        const heading = HEADING.exec(line);
        if (heading) {
            out.append(element("h" + Math.min(6, heading[1].length + 2), heading[2]));
            return at + 1;
        }
        if (QUOTE.test(line)) {
            const end = takeWhile(lines, at, l => QUOTE.test(l));
            out.append(element("blockquote",
                lines.slice(at, end).map(l => QUOTE.exec(l)[1]).join("\n")));
            return end;
        }
        if (ITEM.test(line)) return addList(out, lines, at);
        const end = takeWhile(lines, at + 1, l =>
            l.trim() && !FENCE.test(l) && !HEADING.test(l) && !ITEM.test(l) && !QUOTE.test(l));
        const p = element("p", lines.slice(at, end).join("\n"));
        p.style.whiteSpace = "pre-wrap";
        out.append(p);
        return end;
    }

    // Replaces what `parent` holds by `text` rendered.
    return function render(parent, text) {
        const out = document.createDocumentFragment();
        const lines = text.split("\n");
        for (let at = 0; at < lines.length;) {
            if (lines[at].trim()) at = addBlock(out, lines, at);
            else at++;
        }
        parent.replaceChildren(out);
    };
})();
