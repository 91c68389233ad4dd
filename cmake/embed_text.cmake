# Writes a C++ file with a text file's content as a string, so that the binary needs no files beside
# it: cmake -DINPUT=index.html -DOUTPUT=page_text.cpp -DNAME=kPageText -DPARTS=FOLDER
# -P embed_text.cmake. Each /*include FILE*/ becomes the content of PARTS/FILE.
file(READ "${INPUT}" text)
string(REGEX MATCHALL "/[*]include [a-z_.]+[*]/" includes "${text}")
foreach(include ${includes})
  string(REGEX REPLACE "/[*]include (.+)[*]/" "\\1" name "${include}")
  file(READ "${PARTS}/${name}" part)
  string(REPLACE "${include}" "${part}" text "${text}")
endforeach()
file(WRITE "${OUTPUT}.new" "#include <string_view>

namespace sluice {
extern const std::string_view ${NAME};
const std::string_view ${NAME} = R\"SLUICE_TEXT(${text})SLUICE_TEXT\";
}  // namespace sluice
")
# The same content keeps its time, so nothing is compiled again.
file(COPY_FILE "${OUTPUT}.new" "${OUTPUT}" ONLY_IF_DIFFERENT)
file(REMOVE "${OUTPUT}.new")
