# libkvr for other programs (shared library, headers, pkg-config file), Debian packages, a tarball.

libdir = $(prefix)/lib
includedir = $(prefix)/include
SONAME := libkvr.so.0
SHARED_LIBRARY := $(BUILD)/lib/libkvr.so.$(VERSION)

# The shared library is all but HTTP, ZMQ and the kernels: a router inside another program needs
# none of curl, ZMQ and BLAS. What is linked into programs need not be position-independent; this is.
SHARED_SOURCES := $(filter-out libkvr/net/%,$(LIBRARY_SOURCES))
SHARED_OBJECTS := $(SHARED_SOURCES:%=$(BUILD)/pic/%.o)
SHARED_FLAGS := -fPIC -fno-semantic-interposition

$(BUILD)/pic/%.c.o: %.c
	@mkdir -p $(@D)
	$(call say,cc,$< (shared))$(CC) $(CPPFLAGS) $(CFLAGS) $(SHARED_FLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/pic/%.cc.o: %.cc
	@mkdir -p $(@D)
	$(call say,c++,$< (shared))$(CXX) $(CPPFLAGS) $(CXXFLAGS) $(SHARED_FLAGS) -MMD -MP -c -o $@ $<

.PHONY: shared
shared: $(SHARED_LIBRARY)
$(SHARED_LIBRARY): packaging/libkvr.map $(SHARED_OBJECTS)
	@mkdir -p $(@D)
	$(call say,link,$@)$(CXX) -shared -o $@ $(filter %.o,$^) -Wl,-soname,$(SONAME) -Wl,--version-script=$< \
	    -Wl,-z,defs $(LDFLAGS) $(LIBS)

-include $(wildcard $(BUILD)/pic/libkvr/*/*.d $(BUILD)/pic/libkvr/*/*/*.d)

# Headers keep their folders, for they include one another as "base/error.h".
PUBLIC_HEADERS := $(filter-out libkvr/net/% %/template_unicode_table.h,$(wildcard libkvr/*/*.h libkvr/*/*.def))

.PHONY: install-library uninstall-library
install: install-library
install-library: $(SHARED_LIBRARY)
	install -d $(DESTDIR)$(libdir)/pkgconfig $(sort $(dir $(PUBLIC_HEADERS:libkvr/%=$(DESTDIR)$(includedir)/kvr/%)))
	install -m 644 $(SHARED_LIBRARY) $(DESTDIR)$(libdir)/
	ln -sf libkvr.so.$(VERSION) $(DESTDIR)$(libdir)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(libdir)/libkvr.so
	for header in $(PUBLIC_HEADERS:libkvr/%=%); do install -m 644 libkvr/$$header $(DESTDIR)$(includedir)/kvr/$$header || exit; done
	sed 's|@prefix@|$(prefix)|; s|@libdir@|$(libdir)|; s|@version@|$(VERSION)|' packaging/kvr.pc.in > $(DESTDIR)$(libdir)/pkgconfig/kvr.pc

uninstall: uninstall-library
uninstall-library:
	rm -f $(DESTDIR)$(libdir)/libkvr.so.$(VERSION) $(DESTDIR)$(libdir)/$(SONAME) $(DESTDIR)$(libdir)/libkvr.so $(DESTDIR)$(libdir)/pkgconfig/kvr.pc
	for header in $(PUBLIC_HEADERS:libkvr/%=%); do rm -f $(DESTDIR)$(includedir)/kvr/$$header; done
	-rmdir $(sort $(dir $(PUBLIC_HEADERS:libkvr/%=$(DESTDIR)$(includedir)/kvr/%))) $(DESTDIR)$(includedir)/kvr 2>/dev/null

# Three Debian packages: kvr, libkvr0, libkvr-dev.
.PHONY: deb
deb: all completions $(SHARED_LIBRARY)
	@MAKE='$(MAKE)' BUILD='$(BUILD)' packaging/deb $(VERSION)

# The programs, to be unpacked anywhere: packaging/README.tarball says what they still need. The old
# kind of rpath, for it also finds what the libraries beside them need.
STATIC_LIBS = -Wl,-Bstatic -lz -lxxhash -lpcre2-8 -lmsgpackc -Wl,-Bdynamic \
    $(filter-out -lz -lxxhash -lpcre2-8 -lmsgpackc,$(LIBS))
STATIC_PROGRAMS := $(PROGRAMS:$(BUILD)/bin/%=$(BUILD)/static/%)

$(BUILD)/static/%: $(BUILD)/cmd/%.c.o $(COMMON) $(LIBRARY)
	@mkdir -p $(@D)
	$(call say,link,$@)$(CXX) -o $@ $< $(COMMON) $(LIBRARY) $(LDFLAGS) \
	    -Wl,--disable-new-dtags '-Wl,-rpath,$$ORIGIN/../lib/kvr' $(STATIC_LIBS)

.PHONY: tarball
tarball: all completions $(STATIC_PROGRAMS)
	@MAKE='$(MAKE)' BUILD='$(BUILD)' packaging/tarball $(VERSION)
