# Leaves out the paragraph macros of scdoc's output that stand before or after nothing, of which
# mandoc -Tlint complains, indents its continuation lines without tabs, and keeps text that starts
# with a dot from being read as a macro.
function flush() { if (held) print ".P"; held = 0 }
/^\.P$/ { if (!headed) held = 1; next }
/^\.(RE|SH|SS|nf|RS)/ { held = 0 }
/^\.\\&/ { $0 = "\\" "&." substr($0, 4) }
{ flush(); sub(/^\t/, "\\ \\ \\ \\ "); print; headed = /^\.(SH|SS|RS|TH)/ }
