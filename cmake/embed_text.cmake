# Writes a C++ file with a text file's content as a string, so that the binary needs no files beside
# it: cmake -DINPUT=index.html -DOUTPUT=page_text.cpp -DNAME=kPageText -P embed_text.cmake
file(READ "${INPUT}" text)
file(WRITE "${OUTPUT}.new" "#include <string_view>

namespace sluice {
extern const std::string_view ${NAME};
const std::string_view ${NAME} = R\"SLUICE_TEXT(${text})SLUICE_TEXT\";
}  // namespace sluice
")
# The same content keeps its time, so nothing is compiled again.
file(COPY_FILE "${OUTPUT}.new" "${OUTPUT}" ONLY_IF_DIFFERENT)
file(REMOVE "${OUTPUT}.new")
