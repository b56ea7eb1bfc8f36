/* The names of the subjects of C-Eval and CMMLU in Chinese, as the sentence before a document has
 * them: those of lm-evaluation-harness 0.4.13. A line is a subject and its name. */
#include "eval/subjects.h"

#include <string.h>

static const char ceval[] =
    "accountant 注册会计师\nadvanced_mathematics 高等数学\nart_studies 艺术学\nbasic_medicine "
    "基础医学\n"
    "business_administration 工商管理\nchinese_language_and_literature 中国语言文学\n"
    "civil_servant 公务员\nclinical_medicine 临床医学\ncollege_chemistry 大学化学\n"
    "college_economics 大学经济学\ncollege_physics 大学物理\ncollege_programming 大学编程\n"
    "computer_architecture 计算机组成\ncomputer_network 计算机网络\ndiscrete_mathematics 离散数学\n"
    "education_science 教育学\nelectrical_engineer 注册电气工程师\n"
    "environmental_impact_assessment_engineer 环境影响评价工程师\nfire_engineer 注册消防工程师\n"
    "high_school_biology 高中生物\nhigh_school_chemistry 高中化学\nhigh_school_chinese 高中语文\n"
    "high_school_geography 高中地理\nhigh_school_history 高中历史\nhigh_school_mathematics "
    "高中数学\n"
    "high_school_physics 高中物理\nhigh_school_politics 高中政治\n"
    "ideological_and_moral_cultivation 思想道德修养与法律基础\nlaw 法学\nlegal_professional "
    "法律职业资格\n"
    "logic 逻辑学\nmao_zedong_thought 毛泽东思想和中国特色社会主义理论体系概论\nmarxism "
    "马克思主义基本原理\n"
    "metrology_engineer 注册计量师\nmiddle_school_biology 初中生物\nmiddle_school_chemistry "
    "初中化学\n"
    "middle_school_geography 初中地理\nmiddle_school_history 初中历史\n"
    "middle_school_mathematics 初中数学\nmiddle_school_physics 初中物理\n"
    "middle_school_politics 初中政治\nmodern_chinese_history 近代史纲要\noperating_system "
    "操作系统\n"
    "physician 医师资格\nplant_protection 植物保护\nprobability_and_statistics 概率统计\n"
    "professional_tour_guide 导游资格\nsports_science 体育学\ntax_accountant 税务师\n"
    "teacher_qualification 教师资格\nurban_and_rural_planner 注册城乡规划师\nveterinary_medicine "
    "兽医学\n";

static const char cmmlu[] =
    "agronomy 农学\nanatomy 解剖学\nancient_chinese 古汉语\narts 艺术学\nastronomy 天文学\n"
    "business_ethics 商业伦理\nchinese_civil_service_exam 中国公务员考试\n"
    "chinese_driving_rule 中国驾驶规则\nchinese_food_culture 中国饮食文化\n"
    "chinese_foreign_policy 中国外交政策\nchinese_history 中国历史\nchinese_literature 中国文学\n"
    "chinese_teacher_qualification 中国教师资格\nclinical_knowledge 临床知识\n"
    "college_actuarial_science 大学精算学\ncollege_education 大学教育学\n"
    "college_engineering_hydrology 大学工程水文学\ncollege_law 大学法律\ncollege_mathematics "
    "大学数学\n"
    "college_medical_statistics 大学医学统计\ncollege_medicine 大学医学\ncomputer_science "
    "计算机科学\n"
    "computer_security 计算机安全\nconceptual_physics 概念物理学\n"
    "construction_project_management 建设工程管理\neconomics 经济学\neducation 教育学\n"
    "electrical_engineering 电气工程\nelementary_chinese 小学语文\nelementary_commonsense "
    "小学常识\n"
    "elementary_information_and_technology 小学信息技术\nelementary_mathematics 初等数学\n"
    "ethnology 民族学\nfood_science 食品科学\ngenetics 遗传学\nglobal_facts 全球事实\n"
    "high_school_biology 高中生物\nhigh_school_chemistry 高中化学\nhigh_school_geography 高中地理\n"
    "high_school_mathematics 高中数学\nhigh_school_physics 高中物理学\nhigh_school_politics "
    "高中政治\n"
    "human_sexuality 人类性行为\ninternational_law 国际法学\njournalism 新闻学\njurisprudence "
    "法理学\n"
    "legal_and_moral_basis 法律与道德基础\nlogical 逻辑学\nmachine_learning 机器学习\nmanagement "
    "管理学\n"
    "marketing 市场营销\nmarxist_theory 马克思主义理论\nmodern_chinese 现代汉语\nnutrition 营养学\n"
    "philosophy 哲学\nprofessional_accounting 专业会计\nprofessional_law 专业法学\n"
    "professional_medicine 专业医学\nprofessional_psychology 专业心理学\npublic_relations "
    "公共关系\n"
    "security_study 安全研究\nsociology 社会学\nsports_science 体育学\n"
    "traditional_chinese_medicine 中医中药\nvirology 病毒学\nworld_history 世界历史\n"
    "world_religions 世界宗教\n";

const char *eval_subject_name(bool of_ceval, const char *subject, size_t *len) {
    size_t n = strlen(subject);
    for (const char *s = of_ceval ? ceval : cmmlu; *s; s = strchr(s, '\n') + 1) {
        if (strncmp(s, subject, n) != 0 || s[n] != ' ') continue;
        *len = (size_t)(strchr(s, '\n') - s) - n - 1;
        return s + n + 1;
    }
    return NULL;
}
