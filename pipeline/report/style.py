"""Has the style of the page: readable on a phone, in the dark and on paper; nothing is loaded."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--p:#e0a030;--u:#c8342c;--t0:#7f9fbf;--t1:#4f7398;--g:#99999955}
body{font:15px/1.45 system-ui,sans-serif;max-width:78rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem;margin:0 0 .3rem}h2{font-size:1.15rem;margin:2rem 0 .4rem;border-bottom:1px solid #8884}
p{margin:.3rem 0}.s{font-size:.85rem;opacity:.8}.lead{font-size:1.1rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;width:100%}
th,td{text-align:right;padding:.25rem .55rem;border-bottom:1px solid #8883;vertical-align:top}
td{white-space:nowrap}.x{text-align:left}.r,.x+.x{white-space:normal}
th{border-bottom:2px solid #8886;font-weight:600}
svg{width:100%;min-width:34rem;font:12px system-ui,sans-serif}svg text{fill:currentColor}
.p{fill:var(--p);color:var(--p)}.u{fill:var(--u);color:var(--u)}.t0{fill:var(--t0)}.t1{fill:var(--t1)}
.t{color:var(--t1)}.g{fill:var(--g);color:#999}.a{stroke:#8885}
summary{cursor:pointer}details{margin:.2rem 0}
@media print{body{max-width:none;font-size:11px}.scroll{overflow:visible}h2{break-after:avoid}tr{break-inside:avoid}}
"""
