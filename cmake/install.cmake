# The program and what it looks for beside itself (MPI's plugin, the planner's page) lie in a folder of
# their own; bin/ has a link to it.
set(INSTALL_FOLDER lib/athanor)
install(PROGRAMS $<TARGET_FILE:athanor> DESTINATION ${INSTALL_FOLDER})
if(TARGET athanor-mpi)
    install(PROGRAMS $<TARGET_FILE:athanor-mpi> DESTINATION ${INSTALL_FOLDER})
endif()
install(FILES ${CMAKE_SOURCE_DIR}/build/web/plan.html DESTINATION ${INSTALL_FOLDER} OPTIONAL)
install(CODE "
    set(bin \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin\")
    file(MAKE_DIRECTORY \"\${bin}\")
    file(CREATE_LINK ../${INSTALL_FOLDER}/athanor \"\${bin}/athanor\" SYMBOLIC)
    message(STATUS \"Installing: \${bin}/athanor\")")
